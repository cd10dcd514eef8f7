// Elements that come through a store and not as components (app/shell/drawn.py): html as Dash writes it, without what Dash's
// renderer costs. Text stays text: nothing here is read as HTML.
(function () {
    "use strict";
    const there = new WeakMap(); // by the group's element: what is drawn in it

    function build(part) {
        if (part === null || typeof part !== "object") return document.createTextNode(String(part ?? ""));
        const { children, className, style, ...attributes } = part.props;
        const element = document.createElement(part.type);
        if (className) element.className = className;
        for (const [name, value] of Object.entries(style || {})) element.style.setProperty(name, value);
        for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
        element.append(...[children ?? []].flat().map(build));
        return element;
    }

    // Where an element is among the children of the group, of its child, …; null outside.
    function placeIn(group, element) {
        const place = [];
        for (; element && element !== group; element = element.parentElement) {
            place.unshift([...element.parentElement?.children ?? []].indexOf(element));
        }
        return element ? place : null;
    }

    // The focus stays where it was.
    aotlens.redraw = function (group, children) {
        const place = placeIn(group, document.activeElement);
        group.replaceChildren(...children);
        const focused = place && place.reduce((element, index) => element?.children[index], group);
        if (focused && focused !== group) focused.focus({ preventScroll: true });
    };

    aotlens.draw = function (id, parts) {
        const group = document.getElementById(id);
        if (!group || there.get(group) === parts) return;
        there.set(group, parts);
        aotlens.redraw(group, (parts || []).map(build));
    };
})();

// Tooltips: an element with data-tip says that text on hover and when the keyboard's focus is on it; Escape takes it away.
(function () {
    "use strict";
    const tip = aotlens.element("div", { id: "tip", className: "tip", role: "tooltip", hidden: true });

    function hide() {
        const owner = document.querySelector('[aria-describedby="tip"]');
        if (owner) owner.removeAttribute("aria-describedby");
        tip.hidden = true;
    }

    function show(element) {
        hide();
        if (!tip.isConnected) document.body.append(tip);
        tip.textContent = element.dataset.tip;
        tip.hidden = false;
        element.setAttribute("aria-describedby", "tip");
        const place = element.getBoundingClientRect(), size = tip.getBoundingClientRect();
        const below = place.bottom + 6 + size.height < innerHeight;
        tip.style.left = Math.max(4, Math.min(place.left, document.documentElement.clientWidth - size.width - 4)) + "px";
        tip.style.top = (below ? place.bottom + 6 : place.top - 6 - size.height) + "px";
    }

    function enter({ target }) {
        const element = aotlens.closest(target, "[data-tip]");
        if (element) show(element);
        else hide();
    }

    document.addEventListener("mouseover", enter);
    document.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && enter(event));
    document.addEventListener("focusout", hide);
    document.addEventListener("scroll", hide, true);
    document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
})();

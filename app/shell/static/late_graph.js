// plotly is loaded by the first graph that is in sight or has something to draw: until then a box stands in for dcc.Graph,
// which would load it as soon as its page is laid out, closed tabs included.
(function () {
    "use strict";
    const READY = "_dashprivate_isLazyComponentReady", NAME = "dash_core_components";
    const draws = ({ data, layout } = {}) => Boolean(data?.length || layout?.annotations?.length);

    function lateOf(Graph) {
        let isWanted = false;

        function LateGraph(props) {
            const box = React.useRef(null), wanted = React.useRef(false), [isSeen, see] = React.useState(false);
            wanted.current ||= isSeen || draws(props.figure);
            isWanted ||= wanted.current;
            React.useEffect(function () {
                if (wanted.current) return void aotlens.during(Promise.resolve(Graph[READY]));
                const observer = new IntersectionObserver((entries) => entries.some(({ isIntersecting }) => isIntersecting) && see(true));
                observer.observe(box.current);
                return () => observer.disconnect();
            }, [wanted.current]);
            if (wanted.current) return React.createElement(Graph, props);
            return React.createElement("div", { id: props.id, className: props.className, ref: box });
        }

        // Dash waits for plotly before it calls back, but not for graphs that nobody has seen.
        return Object.defineProperty(Object.assign(LateGraph, Graph), READY, { get: () => (isWanted ? Graph[READY] : true) });
    }

    // When Dash's script of components is there.
    Object.defineProperty(window, NAME, {
        configurable: true,
        set: function (components) {
            const value = { ...components, Graph: lateOf(components.Graph) };
            Object.defineProperty(window, NAME, { value, writable: true, enumerable: true });
        },
    });
})();

// ag-grid is loaded with the first table that is drawn (app/shell/app.py keeps it out of Dash's scripts). Until then a stub
// stands in for its component, and tells Dash that it is not ready as Dash's own late components do.
(function () {
    "use strict";
    const { grid: src } = document.querySelector("template.dash").dataset;
    const READY = "_dashprivate_isLazyComponentReady";
    let real = null, loading = null, Lazy = null;

    function load() {
        return loading ??= aotlens.during(new Promise(function (done, failed) {
            const stub = window.dash_ag_grid;
            function loaded() {
                const { AgGrid, ...rest } = window.dash_ag_grid;
                window.dash_ag_grid = Object.assign(stub, rest);
                real = AgGrid;
                done({ default: AgGrid });
            }
            document.head.append(Object.assign(document.createElement("script"), { src, onload: loaded, onerror: failed }));
        }));
    }

    function AgGrid(props) {
        Lazy ??= React.lazy(load);
        return React.createElement(React.Suspense, { fallback: null }, React.createElement(Lazy, props));
    }

    Object.defineProperty(AgGrid, READY, { get: () => (real ? real[READY] : load().then(() => real[READY])) });
    window.dash_ag_grid = { AgGrid, getApiAsync: (id) => load().then(() => window.dash_ag_grid.getApiAsync(id)) };
})();

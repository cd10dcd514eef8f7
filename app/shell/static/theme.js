// Runs before anything is drawn, so that a dark page never flashes white.
(function () {
    let choice = "auto";
    try {
        choice = localStorage.getItem("mantine-color-scheme-value") || "auto";
    } catch (error) {
        // Storage is forbidden: follow the system.
    }
    const dark = choice === "dark" || (choice !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
    document.documentElement.style.colorScheme = dark ? "dark" : "light";
})();

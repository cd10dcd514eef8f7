// A place to draw an image with a pointer, white on black (app/shell/own_images.py).
(function () {
    "use strict";
    let held = null; // where the pointer was, and on which canvas

    function penOf(canvas) {
        const pen = canvas.getContext("2d");
        return Object.assign(pen, { strokeStyle: "white", lineWidth: canvas.width / 11, lineCap: "round", lineJoin: "round" });
    }

    function place({ clientX, clientY }, canvas) {
        const box = canvas.getBoundingClientRect();
        return [(clientX - box.left) * canvas.width / box.width, (clientY - box.top) * canvas.height / box.height];
    }

    function stroke(canvas, from, to) {
        const pen = penOf(canvas);
        pen.beginPath();
        pen.moveTo(...from);
        pen.lineTo(...to);
        pen.stroke();
        canvas.dataset.drawn = "";
        held = { canvas, at: to };
    }

    document.addEventListener("pointerdown", function (event) {
        const canvas = event.target instanceof Element && event.target.closest("canvas.pad");
        if (!canvas || event.button !== 0) return;
        event.preventDefault();
        canvas.setPointerCapture(event.pointerId); // a stroke beyond its edge is no click elsewhere
        const at = place(event, canvas);
        stroke(canvas, at, at);
    });

    document.addEventListener("pointermove", (event) => held && stroke(held.canvas, held.at, place(event, held.canvas)));
    for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { held = null; });

    document.addEventListener("click", function ({ target }) {
        const button = target instanceof Element && target.closest("[data-pad]"), box = button && button.closest("details");
        if (!button) return;
        const canvas = box.querySelector("canvas"), { width, height } = canvas;
        if (button.textContent === "Use it" && "drawn" in canvas.dataset) {
            const copy = Object.assign(document.createElement("canvas"), { width, height }), pen = copy.getContext("2d");
            pen.fillRect(0, 0, width, height);
            pen.drawImage(canvas, 0, 0);
            aotlens.setProps(`${button.dataset.pad}-uploaded`, { data: { name: "a drawing", contents: copy.toDataURL("image/png") } });
            box.open = false;
        } else if (button.textContent === "Clear") {
            canvas.getContext("2d").clearRect(0, 0, width, height);
            delete canvas.dataset.drawn;
        }
    });
})();

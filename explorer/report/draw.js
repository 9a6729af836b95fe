/* Gives every figure of a page to Apache ECharts, and draws it anew where its width changes. */
"use strict";

(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const drawn = new Map();

  function draw(place, figure) {
    place.style.height = figure.height + "px";
    let chart = drawn.get(place);
    if (!chart) {
      chart = echarts.init(place, dark ? "dark" : null, { renderer: "svg" });
      drawn.set(place, chart);
      new ResizeObserver(() => chart.resize()).observe(place);
    }
    chart.setOption(figure.option, true);
    chart.resize();
  }

  window.tilewright = { draw };

  const figures = document.getElementById("figures");
  if (figures) {
    const known = JSON.parse(figures.textContent);
    for (const place of document.querySelectorAll("[data-figure]")) {
      draw(place, known[place.dataset.figure]);
    }
    document.documentElement.dataset.drawn = String(drawn.size);
  }
})();

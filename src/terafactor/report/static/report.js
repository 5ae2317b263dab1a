/* Draws the charts of the page, and reloads the page of a running fit. */
"use strict";
(() => {
  const DASHES = [[], [8, 4], [2, 3], [12, 4, 2, 4]];
  const N_COLORS = 7;
  const FONT = "12px " + getComputedStyle(document.body).fontFamily;

  /* ---- numbers, in the formats of terafactor._format ---- */

  const digits = (value, n) => String(Number(value.toPrecision(n)));

  function scaled(value, units, n) {
    let unit = 0;
    while (Math.abs(value) >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
    return digits(value, n) + units[unit];
  }

  function duration(value, n) {
    if (value === 0) return "0 s";
    if (value < 1) return digits(1000 * value, n) + " ms";
    if (value < 60) return digits(value, n) + " s";
    const minutes = Math.floor(value / 60), seconds = Math.round(value % 60);
    if (minutes < 60) return minutes + " min" + (seconds ? " " + seconds + " s" : "");
    return Math.floor(minutes / 60) + " h" + (minutes % 60 ? " " + (minutes % 60) + " min" : "");
  }

  const formats = {
    number: (v, n = 4) => (Math.abs(v) >= 1e3 && Math.abs(v) < 1e7 ? Math.round(v).toLocaleString("en") : digits(v, n)),
    count: (v, n = 4) => (Number.isInteger(v) ? v.toLocaleString("en") : digits(v, n)),
    percent: (v, n = 3) => digits(100 * v, n) + " %",
    data_size: (v, n = 3) => scaled(v, [" B", " kB", " MB", " GB", " TB"], n),
    duration: (v, n = 3) => duration(v, n),
  };

  /* tick labels are short (20k rather than 20,000), with enough digits to differ */
  const tickFormats = {
    ...formats,
    number: (v, n = 4) => (Math.abs(v) >= 1e3 && Math.abs(v) < 1e7
      ? v.toLocaleString("en", { maximumSignificantDigits: Math.max(n, String(Math.round(Math.abs(v))).length) })
      : digits(v, n)),
    count: (v, n = 3) => scaled(v, ["", "k", "M", "G", "T"], n),
  };

  function tickLabels(ticks, unit) {
    const shown = ticks.filter((tick) => tick !== null);
    let n = 3;
    while (n < 12 && new Set(shown.map((tick) => tickFormats[unit](tick, n))).size < shown.length) n += 1;
    return ticks.map((tick) => (tick === null ? "" : tickFormats[unit](tick, n)));
  }

  /* times count in sixties */
  const DURATION_STEPS = [
    ...[1e-4, 1e-3, 1e-2, 1e-1].flatMap((power) => [power, 2 * power, 5 * power]),
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000,
  ];

  /* counts have no fractions */
  const TENS = Array.from({ length: 15 }, (_, power) => 10 ** (power + 1));
  const COUNT_STEPS = [1, 2, 3, 4, 5, ...TENS.flatMap((ten) => [ten, 2 * ten, 2.5 * ten, 5 * ten])];

  const STEPS = { count: COUNT_STEPS, duration: DURATION_STEPS };

  /* ---- the choices of the reader survive a reload ---- */

  const store = {
    get: (key) => { try { return sessionStorage.getItem(location.pathname + key); } catch { return null; } },
    set: (key, value) => { try { sessionStorage.setItem(location.pathname + key, value); } catch { /* private mode */ } },
  };

  /* ---- one chart ---- */

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const seriesColor = (index) => color("--series" + (index % N_COLORS));

  class Chart {
    constructor(figure, number) {
      this.figure = figure;
      this.spec = JSON.parse(figure.querySelector("script").textContent);
      this.key = "#chart" + number;
      this.axis = Math.min(Number(store.get(this.key + "axis") || 0), this.spec.x.length - 1);
      this.logX = store.get(this.key + "logX") === "true";
      this.logY = store.get(this.key + "logY") === "true";
      if (this.spec.kind === "lines" && !this.spec.small) this.addButtons();
      this.place = figure.appendChild(document.createElement("div"));
      this.place.className = "plot";
      this.draw();
      new ResizeObserver(() => this.resize()).observe(this.place);
    }

    addButtons() {
      const bar = this.figure.appendChild(document.createElement("div"));
      bar.className = "buttons";
      const axes = this.spec.x.map((axis, index) =>
        this.button(bar, axis.label, () => this.axis === index, () => { this.axis = index; }));
      this.buttons = [
        ...axes,
        this.button(bar, "log x", () => this.logX, () => { this.logX = !this.logX; }),
      ];
      if (this.spec.series.every((series) => series.y.every((value) => value > 0)))
        this.buttons.push(this.button(bar, "log y", () => this.logY, () => { this.logY = !this.logY; }));
      else this.logY = false;
      this.buttons.forEach((button) => button.show());
    }

    button(bar, label, isOn, press) {
      const button = bar.appendChild(document.createElement("button"));
      button.type = "button";
      button.textContent = label;
      button.show = () => button.setAttribute("aria-pressed", String(isOn()));
      button.addEventListener("click", () => {
        press();
        for (const name of ["axis", "logX", "logY"]) store.set(this.key + name, String(this[name]));
        this.buttons.forEach((other) => other.show());
        this.draw();
      });
      return button;
    }

    /* every series on the union of all positions, as uPlot needs it */
    data() {
      const tables = this.spec.series.map((series) => {
        let x = series.xs[this.axis], y = series.y;
        if (this.logX) {
          const kept = x.map((_, index) => index).filter((index) => x[index] > 0);
          x = kept.map((index) => x[index]);
          y = kept.map((index) => y[index]);
        }
        return [x, y];
      });
      return tables.length > 1 ? uPlot.join(tables) : tables[0];
    }

    size() {
      const width = Math.max(this.place.clientWidth, 200);
      return { width, height: this.spec.small ? 190 : Math.max(260, Math.min(400, width * 0.45)) };
    }

    isZoomed() {
      const { min, max } = this.plot.scales.x, x = this.plot.data[0];
      return min > x[0] || max < x[x.length - 1];
    }

    resize() {
      if (this.plot && this.plot.width !== this.size().width) this.plot.setSize(this.size());
    }

    draw() {
      if (this.plot) this.plot.destroy();
      const bars = this.spec.kind === "bars";
      this.plot = new uPlot({
        ...this.size(),
        legend: { show: false },
        cursor: {
          drag: { x: true, y: false },
          points: { show: !bars },
          dataIdx: (plot, series, index) => nearest(plot.data[series], index),
        },
        scales: {
          x: { time: false, distr: this.logX ? 3 : 1, range: bars ? barRange : undefined },
          y: { distr: this.logY ? 3 : 1, range: this.spec.y.unit === "number" && !bars ? undefined : fromZero },
        },
        series: [{}, ...this.spec.series.map((series, index) => this.series(series, index, bars))],
        axes: [this.xAxis(), this.yAxis()],
        hooks: { setCursor: [(plot) => this.showValues(plot)] },
      }, this.data(), this.place);
      this.tooltip = this.plot.over.appendChild(document.createElement("div"));
      this.tooltip.className = "tooltip";
      this.tooltip.hidden = true;
      this.drawLegend();
    }

    series(series, index, bars) {
      const shared = { label: series.label, stroke: seriesColor(index), spanGaps: true };
      if (bars) return { ...shared, fill: seriesColor(0), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.85, 40] }) };
      const few = series.y.length <= 60;
      return { ...shared, width: 2, dash: DASHES[index % DASHES.length], points: { show: few, size: 5, fill: seriesColor(index) } };
    }

    xAxis() {
      const axis = this.spec.x[this.axis];
      return {
        ...axisStyle(), label: axis.label, labelSize: 22, size: 34,
        space: 70, incrs: this.logX ? undefined : STEPS[axis.unit],
        values: (_, ticks) => tickLabels(ticks, axis.unit),
      };
    }

    yAxis() {
      const unit = this.spec.y.unit;
      return {
        ...axisStyle(), size: labelSpace, incrs: this.logY ? undefined : STEPS[unit],
        values: (_, ticks) => tickLabels(ticks, unit),
      };
    }

    drawLegend() {
      if (this.legend) this.legend.remove();
      if (this.spec.series.length < 2 || this.spec.small) return;
      this.legend = this.figure.appendChild(document.createElement("ul"));
      this.legend.className = "legend";
      this.spec.series.forEach((series, index) => {
        const item = this.legend.appendChild(document.createElement("li"));
        const line = item.appendChild(document.createElement("span"));
        line.className = "key series" + (index % N_COLORS);
        item.append(series.label);
      });
    }

    showValues(plot) {
      const { left, top, idxs } = plot.cursor;
      const lines = left < 0 || left === undefined ? [] : this.spec.series
        .map((series, index) => [series, idxs && idxs[index + 1], index])
        .filter(([, place]) => place !== null && place !== undefined);
      this.tooltip.hidden = lines.length === 0;
      if (lines.length === 0) return;
      this.tooltip.replaceChildren(...lines.map(([series, place, index]) => this.valueLine(plot, series, place, index)));
      const width = this.tooltip.offsetWidth, space = plot.over.clientWidth;
      const x = left + 14 + width > space ? Math.max(0, left - width - 14) : left + 14;
      this.tooltip.style.transform = `translate(${x}px, ${Math.max(0, top - this.tooltip.offsetHeight - 8)}px)`;
    }

    valueLine(plot, series, place, index) {
      const line = document.createElement("div");
      const x = plot.data[0][place], y = plot.data[index + 1][place];
      if (this.spec.series.length > 1) {
        const key = line.appendChild(document.createElement("span"));
        key.className = "key series" + (index % N_COLORS);
        line.append(series.label + ": ");
      }
      const value = line.appendChild(document.createElement("b"));
      value.textContent = formats[this.spec.y.unit](y);
      const at = this.spec.x[this.axis];
      line.append(series.names ? " · " + series.names[place] : " at " + formats[at.unit](x));
      return line;
    }
  }

  function axisStyle() {
    const grid = { stroke: color("--grid"), width: 1 };
    return { stroke: color("--faint"), grid, ticks: { ...grid, size: 5 }, font: FONT, labelFont: FONT };
  }

  /* room for the widest tick label; measured on a separate canvas, as uPlot caches the font of its own */
  const ruler = document.createElement("canvas").getContext("2d");
  function labelSpace(_, labels) {
    ruler.font = FONT;
    return Math.max(64, ...(labels || []).map((label) => 14 + Math.ceil(ruler.measureText(label).width)));
  }

  const fromZero = (_, low, high) => [0, high > 0 ? 1.05 * high : 1];

  /* bars at both ends keep their full width */
  function barRange(plot, low, high) {
    const x = plot.data[0];
    const half = x.length > 1 ? (x[1] - x[0]) / 2 : 0.5;
    return [low - half, high + half];
  }

  /* with several runs most positions belong to one of them only */
  function nearest(values, index) {
    if (values[index] !== null && values[index] !== undefined) return index;
    for (let away = 1; away < values.length; away += 1) {
      for (const place of [index - away, index + away])
        if (values[place] !== null && values[place] !== undefined) return place;
    }
    return null;
  }

  /* ---- the page of a running fit ---- */

  function keepFresh(seconds) {
    const status = document.getElementById("live"), pause = document.getElementById("pause");
    const written = Number(document.body.dataset.written);
    let paused = store.get("#paused") === "true";
    const age = () => Math.max(0, Math.round(Date.now() / 1000 - written));
    const show = () => {
      const stale = age() > 3600 ? ". No update for an hour: if the run has died, resume it." : "";
      status.textContent = formats.duration(age()) + " ago" + stale;
      pause.textContent = paused ? "resume updates" : "pause updates";
    };
    pause.hidden = false;
    pause.addEventListener("click", () => { paused = !paused; store.set("#paused", String(paused)); show(); });
    setInterval(show, 1000);
    setInterval(() => {
      const looking = document.querySelector(".tooltip:not([hidden])") || charts.some((chart) => chart.isZoomed());
      const busy = document.hidden || looking;
      if (!paused && !busy) location.reload();  // browsers restore the scroll position
    }, 1000 * seconds);
    show();
  }

  const charts = [...document.querySelectorAll("figure.chart")].map((figure, number) => new Chart(figure, number));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.draw()));
  if (document.body.dataset.refresh) keepFresh(Number(document.body.dataset.refresh));
})();

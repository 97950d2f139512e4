// The field that filters, and the plots. Every text here comes from data: it is set as text, never as HTML.
(() => {
  "use strict";
  const COLOURS = ["#2f81c9", "#d9820f", "#1f9d6b", "#c2569b", "#c94f3d", "#8a6fd1", "#8c8c3a", "#4aa3b5"];
  const TONES = {good: "#1f9d6b", work: "#2f81c9", warn: "#d9820f", bad: "#c94f3d", still: "#8c959f", bill: "#4aa3b5", other: "#8a6fd1"};
  const MOST_NAMED = 24; // a legend of more names hides the plot
  const hosts = [...document.querySelectorAll(".plot")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const choice = {};
  let query = "";

  // A label between such marks would be read as TeX, and TeX would be loaded from elsewhere.
  const plain = (text) => String(text).replace(/\$(?=\$)|\\(?=[[(])/g, "$&\u2060");
  const number = (text) => (text === "" ? NaN : Number(text));
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Numbers as the page holds them: how wide they are, then their bytes. What is not finite is a gap.
  function numbers(text) {
    const bytes = Uint8Array.from(atob(text.slice(1)), (letter) => letter.charCodeAt(0));
    return (text[0] === "f" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer));
  }

  function figure(data, options) {
    const fig = Bokeh.Plotting.figure({
      sizing_mode: "stretch_width", height: 360, tools: "box_zoom,pan,wheel_zoom,reset,save", toolbar_location: "above",
      background_fill_color: null, border_fill_color: null, outline_line_color: style("--line"), ...options,
    });
    const [text, dim, line] = ["--text", "--dim", "--line"].map(style);
    for (const axis of [fig.xaxis, fig.yaxis]) {
      axis.axis_label_text_color = text;
      axis.major_label_text_color = text;
      axis.axis_label_text_font_style = "normal";
      axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = dim;
    }
    fig.xgrid.grid_line_color = fig.ygrid.grid_line_color = line;
    fig.toolbar.logo = null;
    fig.toolbar.active_scroll = null; // the wheel scrolls the page until a reader turns zooming on
    // A finger scrolls the page, too; a mouse that is dragged zooms.
    fig.toolbar.active_drag = coarse ? null : fig.toolbar.tools.find((tool) => tool instanceof Bokeh.BoxZoomTool);
    return fig;
  }

  const columns = () => Math.max(1, Math.floor(document.body.clientWidth / 170));
  function legend(fig, entries) {
    if (entries.length < 1 || entries.length > MOST_NAMED) return;
    const items = entries.map(([label, renderers]) => new Bokeh.LegendItem({label: {value: plain(label)}, renderers}));
    fig.add_layout(new Bokeh.Legend({
      items, ncols: columns(), orientation: "horizontal", location: "left", click_policy: "hide", label_text_color: style("--text"),
      background_fill_color: null, border_line_color: null, inactive_fill_color: style("--line"),
    }), "below");
  }

  function grouped(values) {
    const names = [...new Set(values)];
    const numeric = names.every((name) => !Number.isNaN(number(name)));
    names.sort(numeric ? (a, b) => number(a) - number(b) : undefined);
    const many = names.length > COLOURS.length;
    const colour = (index) => (many ? `hsl(${260 - (240 * index) / (names.length - 1)} 60% 50%)` : COLOURS[index]);
    return names.map((name, index) => [name, colour(index)]);
  }

  function lines(data, id) {
    const options = data.times ? {x_axis_type: "datetime"} : {};
    if (data.percent) options.y_range = new Bokeh.Range1d({start: 0, end: 101});
    const fig = figure(data, options);
    fig.xaxis.axis_label = plain(data.x);
    fig.yaxis.axis_label = plain(data.y);
    const axis = choice[id] || 0;
    const found = data.curves.filter(([name]) => !data.find || !query || name.toLowerCase().includes(query));
    const label = data.axes.length ? (curve) => curve[3][axis] : () => "";
    const entries = [], renderers = [];
    const groups = grouped(found.map(label));
    // Each glyph of BokehJS costs a browser milliseconds: curves of too many colours for a legend are one glyph.
    const colours = new Map(groups);
    const parts = groups.length > MOST_NAMED ? [["", null]] : groups;
    for (const [group, one] of parts) {
      const mine = one === null ? found : found.filter((curve) => label(curve) === group);
      const source = (curves, more) => new Bokeh.ColumnDataSource({data: {
        ...more, name: curves.map((curve) => curve[0]), colour: curves.map((curve) => colours.get(label(curve)))}});
      const lines = source(mine, {xs: mine.map((curve) => data.xs[curve[1]]), ys: mine.map((curve) => curve[2])});
      const drawn = [fig.multi_line({xs: {field: "xs"}, ys: {field: "ys"}, source: lines, line_color: {field: "colour"},
        line_width: found.length > 50 ? 1 : 1.8, line_alpha: found.length > 200 ? 0.6 : 1})];
      const lone = mine.filter((curve) => curve[2].length === 1 && Number.isFinite(curve[2][0]));
      if (lone.length) {
        const points = source(lone, {x: lone.map((curve) => data.xs[curve[1]][0]), y: lone.map((curve) => curve[2][0])});
        drawn.push(fig.scatter({x: {field: "x"}, y: {field: "y"}, source: points, fill_color: {field: "colour"},
          line_color: {field: "colour"}}));
      }
      renderers.push(...drawn);
      if (data.axes.length && one !== null) {
        entries.push([group.startsWith(data.axes[axis]) ? group : `${data.axes[axis]} ${group}`, drawn]);
      }
    }
    const across = data.times ? "$snap_x{%F %T} UTC" : "$snap_x{0.[0000]}";
    fig.add_tools(new Bokeh.HoverTool({
      renderers, line_policy: "nearest", formatters: data.times ? {"$snap_x": "datetime"} : {},
      tooltips: [["", "@name"], [data.times ? "time" : "x", across], ["y", "$snap_y{0.[000000]}"]],
    }));
    legend(fig, entries);
    return fig;
  }

  function spans(data) {
    const height = 110 + Math.min(Math.max(data.lanes.length * 26, 60), 1400);
    const lanes = data.lanes.map(plain);
    const fig = figure(data, {x_axis_type: "datetime", height,
      y_range: new Bokeh.FactorRange({factors: [...lanes].reverse()})});
    const entries = [], renderers = [];
    for (const [what, tone] of Object.entries(data.tones)) {
      const mine = data.spans.filter((span) => span[3] === what);
      if (!mine.length) continue;
      const source = new Bokeh.ColumnDataSource({data: {
        y: mine.map((span) => lanes[span[0]]), left: mine.map((span) => span[1]), right: mine.map((span) => span[2]),
        what: mine.map((span) => span[3]), name: mine.map((span) => span[4]), note: mine.map((span) => span[5]),
      }});
      const bar = fig.hbar({y: {field: "y"}, left: {field: "left"}, right: {field: "right"}, height: 0.72, source,
        fill_color: TONES[tone], line_color: style("--back"), line_width: mine.length > 400 ? 0.3 : 1});
      renderers.push(bar);
      entries.push([what, [bar]]);
    }
    fig.add_tools(new Bokeh.HoverTool({renderers, formatters: {"@left": "datetime", "@right": "datetime"},
      tooltips: [["", "@name"], ["", "@what"], ["from", "@left{%F %T} UTC"], ["to", "@right{%F %T} UTC"], ["", "@note"]]}));
    legend(fig, entries);
    return fig;
  }

  function areas(data) {
    const fig = figure(data, {x_axis_type: "datetime"});
    fig.yaxis.axis_label = plain(data.y);
    const entries = [];
    let below = data.times.map(() => 0);
    for (const [name, values, tone] of data.layers) {
      const above = below.map((value, index) => value + (values[index] || 0));
      const source = new Bokeh.ColumnDataSource({data: {x: data.times, y1: below, y2: above, value: values,
        name: values.map(() => name)}});
      const area = fig.varea({x: {field: "x"}, y1: {field: "y1"}, y2: {field: "y2"}, source, fill_color: TONES[tone],
        fill_alpha: 0.75});
      const edge = fig.line({x: {field: "x"}, y: {field: "y2"}, source, line_color: TONES[tone], line_width: 2});
      fig.add_tools(new Bokeh.HoverTool({renderers: [edge], mode: "vline", formatters: {"@x": "datetime"},
        tooltips: [["", "@name"], ["time", "@x{%F %T} UTC"], [data.y, "@value{0.00}"]]}));
      entries.push([name, [area, edge]]);
      below = above;
    }
    legend(fig, entries);
    return fig;
  }

  const DRAW = {lines, spans, areas};
  const parsed = new Map();
  const dataOf = (id) => {
    if (!parsed.has(id)) {
      const data = JSON.parse(document.getElementById(`data-${id}`).textContent);
      if (data.kind === "lines") {
        data.xs = data.xs.map(numbers);
        for (const curve of data.curves) curve[2] = numbers(curve[2]);
      }
      parsed.set(id, data);
    }
    return parsed.get(id);
  };

  // Plots in view are drawn at once, then the page is open; all others while the browser has nothing else to do, so
  // that they are there when a reader comes to them, and when the page is printed.
  const waiting = new Set(), views = new Map();
  const page = document.documentElement.dataset;
  const inView = (host) => {
    const place = host.getBoundingClientRect();
    return place.bottom > 0 && place.top < innerHeight;
  };
  const idle = () => new Promise((done) => (window.requestIdleCallback ? requestIdleCallback(done) : setTimeout(done, 50)));
  let working = false;
  async function work() {
    if (working) return;
    working = true;
    while (waiting.size) {
      let host = [...waiting].find(inView);
      if (!host) {
        page.open = "1";
        await idle();
        host = [...waiting].find(inView) || waiting.values().next().value;
      }
      if (!host) break;
      waiting.delete(host);
      const old = views.get(host);
      const id = host.dataset.plot, data = dataOf(id);
      const fig = DRAW[data.kind](data, id);
      if (old) old.remove();
      host.replaceChildren();
      host.style.minHeight = "0";
      host.classList.toggle("drawn-dark", dark.matches);
      const view = await Bokeh.Plotting.show(fig, host);
      views.set(host, Array.isArray(view) ? view[0] : view);
      page.drawn = String(views.size);
      await new Promise((done) => setTimeout(done)); // what a reader types or clicks comes first
    }
    working = false;
    page.open = "1";
    page.waiting = "0";
  }
  function redraw(some) {
    page.waiting = "1";
    for (const host of some) waiting.add(host);
    work();
  }

  // The texts of all rows, once something is to be found in them.
  let known = null;
  const tables = () => (known ||= [...document.querySelectorAll("table[data-find] > tbody")].map((body) =>
    [...body.rows].map((row) => [row, row.textContent.toLowerCase()])));
  const field = document.getElementById("find"), output = document.getElementById("found");
  let later = 0;
  function filter() {
    const before = query;
    query = field.value.trim().toLowerCase();
    let shown = 0, all = 0;
    for (const rows of tables()) {
      for (const [row, text] of rows) {
        row.hidden = query !== "" && !text.includes(query);
        shown += !row.hidden;
        all += 1;
      }
    }
    output.value = query ? `${shown} of ${all} rows` : "";
    if (query !== before) redraw(hosts.filter((host) => dataOf(host.dataset.plot).find));
  }
  if (field) field.addEventListener("input", () => { clearTimeout(later); later = setTimeout(filter, 150); });
  for (const select of document.querySelectorAll("select[data-plot]")) {
    select.addEventListener("change", () => {
      choice[select.dataset.plot] = select.selectedIndex;
      redraw([document.getElementById(`plot-${select.dataset.plot}`)]);
    });
  }
  let wide = columns(), settled = 0;
  addEventListener("resize", () => {
    clearTimeout(settled);
    settled = setTimeout(() => {
      if (wide === columns()) return;
      wide = columns(); // a phone was turned: a legend that was made for a wide page leaves a narrow one
      redraw(hosts);
    }, 200);
  });
  dark.addEventListener("change", () => redraw(hosts));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
  redraw(hosts);
})();

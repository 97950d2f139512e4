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

  // A line for each cell over the upright axes; its colour is its height on the one that is picked.
  function parallel(data, id) {
    const picked = data.axes.filter((axis) => axis[4])[choice[id] || 0];
    const axes = [...data.axes.filter((axis) => !axis[4]), ...(picked ? [picked] : [])];
    const last = axes.length - 1;
    const fig = figure(data, {height: 420, x_range: new Bokeh.Range1d({start: -0.3, end: last + 0.3}),
      y_range: new Bokeh.Range1d({start: -0.2, end: 1.15})});
    for (const part of [fig.xaxis, fig.yaxis, fig.xgrid, fig.ygrid]) part.visible = false;
    const found = data.names.map((name, index) => index)
      .filter((index) => !query || data.names[index].toLowerCase().includes(query));
    const height = (index, axis) => axis[1][index];
    const hue = (index) => (picked && height(index, picked) >= 0
      ? `hsl(${260 - 240 * Math.min(height(index, picked), 1)} 60% 50%)` : TONES.still);
    const entries = [], renderers = [];
    const looks = [{line_width: found.length > 200 ? 0.8 : 1.5, line_alpha: found.length > 200 ? 0.5 : 0.9},
      {line_width: 1.2, line_alpha: 0.8, line_dash: "dashed"}, {line_width: 4, line_alpha: 1}];
    for (const [kind, word] of data.words.entries()) {
      const mine = found.filter((index) => data.kinds[index] === kind);
      if (!mine.length) continue;
      const source = new Bokeh.ColumnDataSource({data: {
        xs: mine.map(() => axes.map((axis, at) => at)), ys: mine.map((index) => axes.map((axis) => height(index, axis))),
        name: mine.map((index) => data.names[index]), colour: mine.map((index) => (kind === 1 ? TONES.still : hue(index))),
        said: mine.map((index) => axes.map((axis) => `${axis[0]} ${axis[2][index] || "(none)"}`).join(", ")),
        kind: mine.map(() => word),
      }});
      const drawn = fig.multi_line({xs: {field: "xs"}, ys: {field: "ys"}, source, line_color: {field: "colour"}, ...looks[kind]});
      renderers.push(drawn);
      entries.push([word, [drawn]]);
    }
    const text = (x, y, label, more) => fig.text({x, y, text: label.map(plain), text_color: style("--text"), text_font_size: "12px", ...more});
    const every = axes.map((axis, at) => at);
    fig.segment({x0: every, x1: every, y0: every.map(() => -0.1), y1: every.map(() => 1), line_color: style("--dim")});
    text(every, every.map(() => 1.06), axes.map((axis) => axis[0]), {text_align: "center", text_font_style: "bold"});
    const ticks = axes.flatMap((axis, at) => axis[3].map(([y, label]) => [at, y, label]));
    text(ticks.map(([x]) => x), ticks.map(([, y]) => y), ticks.map(([, , label]) => label), {x_offset: 5, text_baseline: "middle"});
    fig.add_tools(new Bokeh.HoverTool({renderers, line_policy: "nearest",
      tooltips: [["", "@name"], ["", "@kind"], ["", "@said"]]}));
    legend(fig, entries);
    return fig;
  }

  const DRAW = {lines, spans, areas, parallel};
  const parsed = new Map();
  const dataOf = (id) => {
    if (!parsed.has(id)) {
      const data = JSON.parse(document.getElementById(`data-${id}`).textContent);
      if (data.kind === "lines") {
        data.xs = data.xs.map(numbers);
        for (const curve of data.curves) curve[2] = numbers(curve[2]);
      }
      if (data.kind === "parallel") for (const axis of data.axes) axis[1] = numbers(axis[1]);
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
  // With a time limit: a browser has no idle moment for a page that is hidden behind another one.
  const idle = () => new Promise((done) => (window.requestIdleCallback
    ? requestIdleCallback(done, {timeout: 500}) : setTimeout(done, 50)));
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
    if (query !== before) redraw(hosts.filter((host) => dataOf(host.dataset.plot).find || dataOf(host.dataset.plot).kind === "parallel"));
  }
  if (field) field.addEventListener("input", () => { clearTimeout(later); later = setTimeout(filter, 150); });
  for (const select of document.querySelectorAll("select[data-plot]")) {
    select.addEventListener("change", () => {
      choice[select.dataset.plot] = select.selectedIndex;
      redraw([document.getElementById(`plot-${select.dataset.plot}`)]);
    });
  }
  // A click on a header sorts by it: upwards, downwards, then as it was. Numbers come before texts, what is missing
  // or no finite number last, whichever way.
  const order = new Intl.Collator("en", {numeric: true});
  const value = (row, at) => row.cells[at].dataset.key ?? row.cells[at].textContent;
  function key(text) {
    const found = text.trim() === "" ? NaN : Number(text);
    if (Number.isFinite(found)) return [0, found];
    return /^([+-]?(nan|inf|infinity)( \(.*)?)?$/i.test(text.trim()) ? [2, text] : [1, text];
  }
  function sort(table, at) {
    const body = table.tBodies[0], head = table.tHead.rows[0].cells[at];
    table.sorted ||= [...body.rows];
    const way = {none: "ascending", ascending: "descending", descending: "none"}[head.ariaSort || "none"];
    for (const one of table.tHead.rows[0].cells) one.ariaSort = one === head ? way : "none";
    const rows = table.sorted.map((row) => [row, key(value(row, at))]), down = way === "descending" ? -1 : 1;
    if (way !== "none") {
      rows.sort(([, [kind, one]], [, [other, two]]) => (kind !== other && (kind === 2 || other === 2) ? kind - other
        : down * (kind !== other ? kind - other : kind === 0 ? one - two : kind === 1 ? order.compare(one, two) : 0)));
    }
    body.replaceChildren(...rows.map(([row]) => row));
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.tBodies[0] || table.tBodies[0].rows.length < 2) continue;
    for (const [at, head] of [...table.tHead.rows[0].cells].entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", () => sort(table, at));
      head.replaceChildren(button);
      head.ariaSort = "none";
    }
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

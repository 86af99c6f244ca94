// Lines over time, drawn by uPlot in the page's colours.

import {short} from './format.js';

/** chart draws into box: series are {name, color}, color the name of a CSS variable.
 * draw takes the times in s and a column for each series. */
export function chart(box, {label, series}, signal) {
  box.setAttribute('role', 'img');
  box.setAttribute('aria-label', label);
  // One moment alone gives an axis without times.
  const pad = (t, columns) => (t.length > 1 ? [t, ...columns] : [[(t[0] ?? Date.now() / 1000) - 60, t[0] ?? Date.now() / 1000], ...columns.map(c => [null, c[0] ?? null])]);
  let plot, data = pad([], series.map(() => []));
  const height = 180;
  const make = () => {
    plot?.destroy();
    const css = getComputedStyle(document.documentElement);
    const line = {stroke: css.getPropertyValue('--soft'), grid: {stroke: css.getPropertyValue('--line'), width: 1}, ticks: {show: false}, font: '12px system-ui, sans-serif'};
    plot = new uPlot({
      width: Math.max(box.clientWidth - 10, 100), height,
      padding: [null, 28, null, null], // half of the last time is beside the plot
      legend: {show: series.length > 1},
      cursor: {y: false, drag: {x: false, y: false}},
      scales: {
        x: {range: (_, min, max) => { const to = max ?? Date.now() / 1000; return [Math.min(min ?? to, to - 60), to]; }},
        y: {range: (_, min, max) => [0, Math.max((max ?? 0) * 1.15, 4)]},
      },
      axes: [
        {...line, space: 80, size: 30, values: (_, ticks) => ticks.map(t => new Date(t * 1000).toLocaleTimeString('en-GB'))},
        {...line, size: 52, values: (_, ticks) => ticks.map(n => (Number.isInteger(n) ? short(n) : ''))},
      ],
      series: [
        {value: (_, t) => (t === null ? '–' : new Date(t * 1000).toLocaleTimeString('en-GB'))},
        ...series.map(s => ({
          label: s.name, stroke: css.getPropertyValue(s.color), width: 2, points: {show: false}, spanGaps: false,
          value: (_, n) => (n === null || n === undefined ? '–' : short(n)),
        })),
      ],
    }, data, box);
  };
  make();
  const theme = matchMedia('(prefers-color-scheme: dark)');
  theme.addEventListener('change', make, {signal});
  const size = new ResizeObserver(() => plot.setSize({width: Math.max(box.clientWidth - 10, 100), height}));
  size.observe(box);
  signal.addEventListener('abort', () => { size.disconnect(); plot.destroy(); }, {once: true});
  return {
    draw(t, ...columns) {
      data = pad(t, columns);
      plot.setData(data);
      const now = columns.map((c, i) => `${series[i].name} ${c.at(-1) === null || c.length === 0 ? 'unknown' : short(c.at(-1))}`);
      box.setAttribute('aria-label', `${label}: now ${now.join(', ')}`);
    },
  };
}

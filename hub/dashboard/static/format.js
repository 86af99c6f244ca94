// How numbers, sizes and times are written.

const whole = new Intl.NumberFormat('en');
const compact = new Intl.NumberFormat('en', {notation: 'compact', maximumFractionDigits: 1});

export const number = n => whole.format(n);

/** short writes a number for an axis. */
export const short = n => compact.format(n);

/** rate writes a number per second. */
export const rate = n => n === null ? '–' : `${n < 10 ? Math.round(n * 10) / 10 : whole.format(Math.round(n))}/s`;

/** bytes writes a size in the units of the configuration. */
export function bytes(n) {
  let unit = 0;
  for (; Math.abs(n) >= 1024 && unit < 4; unit++) n /= 1024;
  return `${n < 10 && unit > 0 ? n.toFixed(1) : Math.round(n)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

/** span writes a duration in ms, two units of it at most. */
export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  const units = [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];
  const from = Math.max(0, units.findIndex(([, size]) => s >= size));
  if (s === 0) return '0s';
  let left = s, out = [];
  for (const [name, size] of units.slice(from, from + 2)) {
    const n = Math.floor(left / size);
    left -= n * size;
    if (n > 0) out.push(n + name);
  }
  return out.join(' ');
}

/** date reads an RFC 3339 time; none and the zero time are null. */
export function date(text) {
  if (!text || text.startsWith('0001-')) return null;
  return new Date(text);
}

/** ago says how long ago a time was, by this browser's clock. */
export function ago(when) {
  if (!when) return 'never';
  const ms = Date.now() - when;
  return ms < 1500 ? 'now' : `${span(ms)} ago`;
}

/** clock writes a time of day in local time, with the date if it is another day. */
export function clock(when) {
  if (!when) return '–';
  const pad = n => String(n).padStart(2, '0');
  const time = `${pad(when.getHours())}:${pad(when.getMinutes())}:${pad(when.getSeconds())}`;
  if (when.toDateString() === new Date().toDateString()) return time;
  return `${when.getFullYear()}-${pad(when.getMonth() + 1)}-${pad(when.getDate())} ${time}`;
}

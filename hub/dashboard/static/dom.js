// How text gets onto the page. Everything that devices, back ends and the hub say
// goes through textContent: it is shown, and never read as HTML.

/** page returns a copy of a template, and part(name) for its elements with data-is. */
export function page(id) {
  const root = document.getElementById(id).content.cloneNode(true);
  const parts = new Map([...root.querySelectorAll('[data-is]')].map(e => [e.dataset.is, e]));
  return {root, part: name => parts.get(name)};
}

/** say sets a text; what does not change is not touched, so that a reader's place
 * and a selection stay. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** badge shows a state by words and by colour. */
export function badge(element, text, kind = '') {
  say(element, text);
  element.className = `badge ${kind}`.trim();
}

/** list shows lines in a list that is hidden with its section while there are none. */
export function list(section, ul, lines) {
  section.hidden = lines.length === 0;
  const same = ul.children.length === lines.length && lines.every((l, i) => ul.children[i].textContent === l);
  if (same) return;
  ul.replaceChildren(...lines.map(line => {
    const li = document.createElement('li');
    li.textContent = line;
    return li;
  }));
}

/** table brings a table's body up to date. A row is {key, cells}: rows that stay
 * keep their elements, and with them the focus. A cell is a text, or
 *   {text, class, title, href, head, badge, meter: {value, max, label}}, or
 *   {make: () => Node} for what is made once.
 * empty is what a table without rows says. */
export function table(body, rows, empty = 'none') {
  const columns = body.parentElement.tHead?.rows[0].cells.length ?? 2;
  if (rows.length === 0) rows = [{key: '\n', cells: [{text: empty, class: 'none', span: columns}]}]; // no key of a device or message
  const old = new Map([...body.rows].map(tr => [tr.dataset.key, tr]));
  let at = body.firstElementChild;
  for (const {key, cells} of rows) {
    let tr = old.get(String(key));
    if (!tr) {
      tr = document.createElement('tr');
      tr.dataset.key = key;
    }
    cells.forEach((c, i) => cell(tr, i, c));
    if (tr === at) at = at.nextElementSibling;
    else body.insertBefore(tr, at);
  }
  while (at) {
    const next = at.nextElementSibling;
    at.remove();
    at = next;
  }
}

function cell(tr, i, c) {
  if (typeof c === 'string') c = {text: c};
  let td = tr.cells[i];
  if (!td) {
    td = document.createElement(c.head ? 'th' : 'td');
    if (c.head) td.scope = 'row';
    if (c.span) td.colSpan = c.span;
    tr.append(td);
    if (c.make) td.append(c.make());
  }
  td.className = c.class ?? '';
  if (c.make) return;
  if (c.title !== undefined && td.title !== c.title) td.title = c.title;
  if (c.badge !== undefined) badge(only(td, 'span'), c.text, c.badge);
  else if (c.href) {
    const a = only(td, 'a');
    if (a.getAttribute('href') !== c.href) a.href = c.href;
    say(a, c.text);
  } else if (c.meter) {
    const m = only(td, 'meter');
    Object.assign(m, {min: 0, max: c.meter.max, low: 0, high: c.meter.max * 0.9, optimum: 0, value: c.meter.value});
    m.setAttribute('aria-label', c.meter.label);
    m.title = c.meter.label;
  } else say(td, c.text);
}

/** only returns the one child of that kind, made anew where there is another. */
function only(td, tag) {
  if (td.childNodes.length === 1 && td.firstChild.localName === tag) return td.firstChild;
  const e = document.createElement(tag);
  td.replaceChildren(e);
  return e;
}

/** button makes a button whose handler's errors go to failed. */
export function button(text, act, kind = '') {
  const b = document.createElement('button');
  b.type = 'button';
  b.textContent = text;
  b.className = kind;
  b.addEventListener('click', act);
  return b;
}

// A device's commands, those that changed last, and the form that sends one.

import {ask, poll, query} from './api.js';
import {say, table} from './dom.js';
import {clock, date} from './format.js';

const pageOf = 100;
const kinds = {acked: 'good', failed: 'bad', expired: 'warn', cancelled: 'warn'};

/** commands fills the part of the page of the device at path. */
export function commands(part, path, signal) {
  const url = `${path}/commands`, form = part('send');
  // Pages come in the order of the last change, the oldest first: it goes on to the
  // last one and stays there, with the one before it.
  let after = '', before = [];
  const again = poll(async () => {
    let answer;
    for (;;) {
      answer = await ask(url + query({after, limit: pageOf}), {signal});
      if (!answer.next) break;
      before = answer.commands;
      after = answer.next;
    }
    const moved = new Set(answer.commands.map(c => c.id));
    const newest = [...before.filter(c => !moved.has(c.id)), ...answer.commands].slice(-pageOf).reverse();
    part('commands-part').hidden = false;
    part('older-commands').hidden = after === '';
    table(part('commands'), newest.map(row), 'none was sent');
  }, () => 4000, signal);

  form.addEventListener('submit', async event => {
    event.preventDefault();
    const {subject, payload, json, ttl} = form.elements;
    const body = {subject: subject.value.trim()};
    try {
      if (json.checked) body.json = JSON.parse(payload.value);
      else if (payload.value) body.payload = payload.value;
    } catch (error) {
      return say(part('sent'), `The payload is not JSON: ${error.message}`);
    }
    if (ttl.value.trim()) body.ttl = ttl.value.trim();
    const send = form.querySelector('button');
    send.disabled = true;
    try {
      const c = await ask(url, {method: 'POST', body, signal});
      say(part('sent'), `Sent as ${c.id}`);
    } catch (error) {
      if (!signal.aborted) say(part('sent'), `Not sent: ${error.message}`);
    } finally {
      send.disabled = false;
    }
    again();
  });
}

function row(c) {
  const since = date(c.settled) ?? date(c.delivered) ?? date(c.sent);
  return {key: c.id, cells: [
    {text: clock(date(c.sent)), class: 'time', title: c.sent}, {text: c.subject, class: 'code', head: true},
    {text: c.cancelling ? `${c.state}, cancelling` : c.state, badge: kinds[c.state] ?? ''}, {text: clock(since), class: 'time'},
    {text: clock(date(c.expires)), class: 'time wide', title: c.expires}, {text: c.reason || text(c.result_b64), class: 'code'}, {text: c.id, class: 'code wide'},
  ]};
}

/** text shows bytes as UTF-8, or as base64 if they are none. */
function text(base64) {
  if (!base64) return '';
  try {
    return new TextDecoder('utf-8', {fatal: true}).decode(Uint8Array.from(atob(base64), c => c.charCodeAt(0))).slice(0, 2000);
  } catch {
    return `base64: ${base64.slice(0, 200)}`;
  }
}

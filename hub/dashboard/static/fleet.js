// What tables of devices have in common.

import {ago, clock, date, number, span} from './format.js';

export const link = d => `#/devices/${encodeURIComponent(d.device)}`;

/** waiting is what a device holds: messages, and since when in ms (null: nothing). */
export function waiting(d) {
  let messages = 0, oldest = null;
  for (const lane of Object.values(d.backlog ?? {})) {
    messages += lane.messages;
    if (lane.messages > 0 && lane.oldest > 0) oldest = Math.min(oldest ?? Infinity, lane.oldest);
  }
  return {messages, oldest};
}

export const dropped = d => Object.values(d.dropped ?? {}).reduce((sum, n) => sum + n, 0);

export const state = d => ({text: d.online ? 'online' : 'offline', badge: d.online ? 'good' : '', title: `since ${clock(date(d.since))}`});

export const oldest = ms => ({text: ms === null ? '–' : span(Date.now() - ms), class: 'time', title: ms === null ? '' : `accepted ${new Date(ms).toISOString()}`});

export const backlog = n => ({text: number(n), class: 'n'});

export const heard = d => ({text: ago(date(d.seen)), class: 'time wide', title: d.seen});

/** trouble is what somebody should look at, in a few words. */
export function trouble(d) {
  const out = [];
  if (d.last_error) out.push(d.last_error.text);
  if (d.quarantine) out.push(`${number(d.quarantine)} segments in quarantine`);
  if (d.clones) out.push(`${number(d.clones.reports)} copies reported`);
  return out.join('; ');
}

// Package dashboard is the page that shows a hub to a person: files that a
// browser loads from the hub itself, and that ask the hub's HTTP API for the rest.
//
// It guarantees that nothing is loaded from elsewhere, so that it works offline;
// that a browser runs no script and applies no style but these files; that the
// pages show what devices say as text, never as HTML; and that a path which is not
// one of its files is not its to answer. What changes something goes through the
// same routes, and the same rule for web pages, as everybody's requests.
//
// An open page asks for one cheap answer every two seconds, and for nothing while
// nobody sees it. What goes through all devices is asked for every ten seconds.
//
// Reading order: dashboard.go (how the files are served), then in static
// index.html (the pages), app.js (which page is shown), api.js (every request),
// dom.js and format.js (how text gets there), history.js and chart.js (what moves),
// and a file for each page. uplot holds uPlot, a library for charts, as published.
package dashboard

// Package pages tests the page of observe/inspect in a browser, to spare the root module the
// library.
package pages

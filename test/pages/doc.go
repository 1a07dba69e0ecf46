// Package pages tests the page of observe/inspect in a browser, outside the root module to spare it
// the library.
package pages

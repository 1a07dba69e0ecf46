// Package pages opens the page of observe/inspect in a browser, in tests: the root module takes on
// no library that drives one.
package pages

package report

import _ "embed"

// Glossary explains the columns and the method, for the help and for the page.
//
//go:embed glossary.txt
var Glossary string

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ral-limiter/ral/bench"
)

const readable = "want a file that ralbench -json has written"

// Read reads a run written with -json. The error names the file and the accepted content.
func Read(name string) (Document, error) {
	file, err := os.Open(name)
	if err != nil {
		return Document{}, fmt.Errorf("%w; %s", err, readable)
	}
	defer func() { _ = file.Close() }()
	document, err := Decode(file)
	if err != nil {
		return Document{}, fmt.Errorf("%s: %w", name, err)
	}
	return document, nil
}

// Decode reads a document. It skips unknown fields: newer versions may add some within the schema.
func Decode(reader io.Reader) (document Document, err error) {
	decoder := json.NewDecoder(reader)
	err = decoder.Decode(&document)
	isNameless := func(w bench.WorkloadReport) bool { return w.Name == "" }
	problem := ""
	switch {
	case errors.Is(err, io.EOF):
		problem = "is empty"
	case err != nil:
		problem = fmt.Sprintf("cannot be read as JSON of ralbench: %v", err)
	case decoder.More():
		problem = "goes on behind the first JSON value"
	case document.Schema == 0:
		problem = "is JSON, but not of ralbench: it has no schema"
	case document.Schema != Schema:
		problem = fmt.Sprintf("has schema %d, but this ralbench reads schema %d only", document.Schema, Schema)
	case len(document.Workloads) == 0:
		problem = "has no workloads: nothing was measured"
	case slices.ContainsFunc(document.Workloads, isNameless):
		problem = "has a workload without a name"
	default:
		return document, nil
	}
	return document, fmt.Errorf("%s; %s", problem, readable)
}

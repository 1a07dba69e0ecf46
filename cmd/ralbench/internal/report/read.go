package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
func Decode(r io.Reader) (Document, error) {
	var document Document
	decoder := json.NewDecoder(r)
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return document, fmt.Errorf("is empty; %s", readable)
	case err != nil:
		return document, fmt.Errorf("cannot be read as JSON of ralbench: %w; %s", err, readable)
	case decoder.More():
		return document, fmt.Errorf("goes on behind the first JSON value; %s", readable)
	case document.Schema == 0:
		return document, fmt.Errorf("is JSON, but not of ralbench: it has no schema; %s", readable)
	case document.Schema != Schema:
		return document, fmt.Errorf("has schema %d, but this ralbench reads schema %d only; write it again with this version", document.Schema, Schema)
	case len(document.Workloads) == 0:
		return document, fmt.Errorf("has no workloads: nothing was measured; %s", readable)
	}
	for i := range document.Workloads {
		if document.Workloads[i].Name == "" {
			return document, fmt.Errorf("has a workload without a name; %s", readable)
		}
	}
	return document, nil
}

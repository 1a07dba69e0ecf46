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
	f, err := os.Open(name)
	if err != nil {
		return Document{}, fmt.Errorf("%w; %s", err, readable)
	}
	defer func() { _ = f.Close() }()
	d, err := Decode(f)
	if err != nil {
		return Document{}, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// Decode reads a document. It skips unknown fields: newer versions may add some within the schema.
func Decode(r io.Reader) (Document, error) {
	var d Document
	decoder := json.NewDecoder(r)
	switch err := decoder.Decode(&d); {
	case errors.Is(err, io.EOF):
		return d, fmt.Errorf("is empty; %s", readable)
	case err != nil:
		return d, fmt.Errorf("cannot be read as JSON of ralbench: %w; %s", err, readable)
	case decoder.More():
		return d, fmt.Errorf("goes on behind the first JSON value; %s", readable)
	case d.Schema == 0:
		return d, fmt.Errorf("is JSON, but not of ralbench: it has no schema; %s", readable)
	case d.Schema != Schema:
		return d, fmt.Errorf("has schema %d, but this ralbench reads schema %d only; write it again with this version", d.Schema, Schema)
	case len(d.Workloads) == 0:
		return d, fmt.Errorf("has no workloads: nothing was measured; %s", readable)
	}
	for i := range d.Workloads {
		if d.Workloads[i].Name == "" {
			return d, fmt.Errorf("has a workload without a name; %s", readable)
		}
	}
	return d, nil
}

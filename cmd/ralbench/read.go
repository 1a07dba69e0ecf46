package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// readable says what a file must be, for errors.
const readable = "want a file that ralbench -json has written"

// readDocument reads what an earlier run wrote with -json. The error names the
// file and says what is accepted.
func readDocument(name string) (document, error) {
	f, err := os.Open(name)
	if err != nil {
		return document{}, fmt.Errorf("%w; %s", err, readable)
	}
	defer func() { _ = f.Close() }()
	d, err := decode(f)
	if err != nil {
		return document{}, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// decode reads one document and makes it as this version would have written it.
// Fields that it does not know are passed over: a newer version may have added
// some, which is no new schema.
func decode(r io.Reader) (document, error) {
	var d document
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
	case d.Schema != schema:
		return d, fmt.Errorf("has schema %d, but this ralbench reads schema %d only; write it again with this version", d.Schema, schema)
	case len(d.Workloads) == 0:
		return d, fmt.Errorf("has no workloads: nothing was measured; %s", readable)
	}
	for i := range d.Workloads {
		w := &d.Workloads[i]
		if w.Name == "" {
			return d, fmt.Errorf("has a workload without a name; %s", readable)
		}
		// Before runs could sweep over processors, only the settings told.
		if w.CPU == 0 {
			w.CPU = max(d.Settings.CPU, 1)
		}
	}
	return d, nil
}

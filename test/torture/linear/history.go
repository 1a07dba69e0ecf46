package linear

import (
	"encoding/json"
	"fmt"
	"os"
)

// History is a run in a file, to be checked again.
type History struct {
	Scenario string
	Seed     uint64
	Taken    uint64
	Ops      []Op
}

// Save writes a history to a new file in dir, "" for the default, and returns its name.
func (h *History) Save(dir string) (string, error) {
	f, err := os.CreateTemp(dir, "ral-history-*.json")
	if err != nil {
		return "", err
	}
	err = json.NewEncoder(f).Encode(h)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return f.Name(), err
}

func Load(name string) (*History, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var h History
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &h, nil
}

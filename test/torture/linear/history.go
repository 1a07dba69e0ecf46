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
	file, err := os.CreateTemp(dir, "ral-history-*.json")
	if err != nil {
		return "", err
	}
	err = json.NewEncoder(file).Encode(h)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return file.Name(), err
}

func Load(name string) (*History, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var history History
	if err := json.Unmarshal(data, &history); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &history, nil
}

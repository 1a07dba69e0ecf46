package configured

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ral-limiter/ral/cmd/rald/internal/limitfile"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/policy"
)

// FileName is the name of Config.File in the directory of the saved state.
const FileName = "limits.json"

type kept struct {
	Limit string `json:"limit"`
}

// remember writes the limits of the keys, before the first key is kept. While a limit changes, that
// is the limit of the keys without a note, unless their words are all translated.
func (l *Limits) remember(table map[string]*limit, translated bool) error {
	if l.config.File == "" {
		return nil
	}
	all := make(map[string]kept, len(table))
	for name, one := range table {
		if _, isGroup := one.family.(*group); isGroup {
			// The units of such a limit are not kept.
			continue
		}
		if from := one.from.Load(); from != nil && !translated {
			one = from
		}
		all[name] = kept{one.Policy.String()}
	}
	err := statefile.Replace(l.config.File, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "\t")
		return encoder.Encode(all)
	})
	if err != nil {
		return fmt.Errorf("the limits that keys are kept under cannot be written down: %w", err)
	}
	return nil
}

// remembered returns the limits of the saved keys, none in force.
func (l *Limits) remembered() (map[string]*limit, error) {
	table := map[string]*limit{}
	if l.config.File == "" {
		return table, nil
	}
	text, err := os.ReadFile(l.config.File)
	if errors.Is(err, fs.ErrNotExist) {
		return table, nil
	}
	all := map[string]kept{}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	for name, of := range all {
		limit, wrong := policy.Parse(of.Limit)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, wrong))
		} else if family, ok := l.config.Families.Find(limit); ok {
			table[name] = newLimit(limitfile.Named{Name: name, Policy: limit}, family)
			table[name].gone = true
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the limits that keys are kept under: %s: %w (move the file away to begin with what keys owe under the limits "+
			"of the configuration: keys of a limit that has changed since the last start may be forgotten)", l.config.File, err)
	}
	return table, nil
}

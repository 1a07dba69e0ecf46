package named

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ral-limiter/ral/cmd/rald/internal/spaces"
	"github.com/ral-limiter/ral/internal/statefile"
	"github.com/ral-limiter/ral/policy"
)

// FileName is the name of Config.File in the directory of the saved state.
const FileName = "limits.json"

// kept is what is remembered of a limit: the text of the one that its keys are kept under.
type kept struct {
	Limit string `json:"limit"`
	// From is the limit of another engine from which keys are on their way, or "".
	From string `json:"from,omitempty"`
}

// remember writes down which limits the keys are kept under, before the first of them is.
func (l *Limits) remember(table map[string]*limit, changed []*carrying) error {
	if l.config.File == "" {
		return nil
	}
	all := make(map[string]kept, len(table))
	for name, one := range table {
		all[name] = kept{Limit: one.policy.String()}
	}
	for _, c := range changed {
		if !c.inPlace() {
			name := c.to.prefix[len(Mark) : len(c.to.prefix)-len(Mark)]
			all[name] = kept{Limit: c.to.policy.String(), From: c.from.policy.String()}
		}
	}
	err := statefile.Replace(l.config.File, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "\t")
		return e.Encode(all)
	})
	if err != nil {
		return fmt.Errorf("the limits that keys are kept under cannot be written down: %w", err)
	}
	return nil
}

// settle saves keys where they have been carried to, and then forgets them where they were. If
// it fails, or the process ends before, a later process carries them from where they were.
func (l *Limits) settle(table map[string]*limit, changed []*carrying) {
	err := saveAll(changed, func(c *carrying) *spaces.Space { return c.to.space })
	var elsewhere []*carrying
	for _, c := range changed {
		if !c.inPlace() {
			c.forget()
			elsewhere = append(elsewhere, c)
		}
	}
	if err == nil && len(elsewhere) > 0 {
		err = saveAll(elsewhere, func(c *carrying) *spaces.Space { return c.from.space })
		if err == nil {
			err = l.remember(table, nil)
		}
	}
	if l.unsaved = err != nil; l.unsaved {
		l.config.Log.Error("limits have changed, and what keys owe could not be saved", "error", err)
	}
}

// saveAll saves the engine of each change once.
func saveAll(changed []*carrying, of func(*carrying) *spaces.Space) (err error) {
	saved := map[*spaces.Space]bool{}
	for _, c := range changed {
		if space := of(c); !saved[space] {
			saved[space] = true
			err = errors.Join(err, space.Sync())
		}
	}
	return err
}

// remembered returns the limits that the keys are kept under, none of them in force, after it
// has carried those that were on their way. It leaves out a limit of which no keys were saved.
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
	if err != nil {
		return nil, l.unusable(err)
	}
	var unfinished []*carrying
	for name, of := range all {
		one, err := l.gone(name, of.Limit)
		var from *limit
		if err == nil && of.From != "" {
			from, err = l.gone(name, of.From)
		}
		if err == nil && from != nil && from.space != nil && one.space == nil {
			var kept []*spaces.Space
			kept, err = l.config.Spaces.Keep(one.policy)
			one.space = kept[0]
		}
		if err != nil {
			return nil, l.unusable(fmt.Errorf("%s: %w", name, err))
		}
		if from != nil && from.space != nil {
			c := newCarrying(from, one)
			c.again = true
			unfinished = append(unfinished, c)
		}
		if one.space != nil {
			table[name] = one
		}
	}
	for _, c := range unfinished {
		c.all()
	}
	if len(unfinished) > 0 {
		l.settle(table, unfinished)
	}
	return table, nil
}

// unusable returns the error of a record that cannot be used, with what to do about it.
func (l *Limits) unusable(err error) error {
	return fmt.Errorf("the limits that keys are kept under: %s: %w (move the file away to begin with what keys owe under the limits "+
		"of the configuration: keys of a limit that has changed since the last start may be forgotten)", l.config.File, err)
}

// gone returns a limit that is not in force. It has no space if there are no keys of its family.
func (l *Limits) gone(name, text string) (*limit, error) {
	p, err := policy.Parse(text)
	if err != nil {
		return nil, err
	}
	space, _ := l.config.Spaces.Find(p)
	one := newLimit(name, p, space)
	one.gone = true
	return one, nil
}

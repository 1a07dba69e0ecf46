package replay

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/ral-limiter/ral/internal/core/penalty"
	"github.com/ral-limiter/ral/internal/core/statefile"
	"github.com/ral-limiter/ral/policy"
)

// KeyState is what a key owed, or until when it was blocked, when an engine was saved.
type KeyState struct {
	key, limit string
	word       uint64
}

// ReadState reads a state that engine.Engine.Save wrote. Its keys must be strings, since a record has others in
// another form.
func ReadState(r io.Reader) (all []KeyState, err error) {
	from, err := statefile.NewReader(r)
	if err != nil {
		return nil, err
	}
	if codec := from.Header().Codec; codec != "string" {
		return nil, fmt.Errorf("the keys of the state are %.40q, want \"string\"", codec)
	}
	for {
		record, err := from.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, KeyState{strconv.Quote(string(record.Key)), record.Limit, record.Word})
	}
}

// load begins with the keys of a state, under each limit that made their words.
func (r *Replay) load(first int64) {
	for _, state := range r.config.States {
		key, ok := r.keys.Number([]byte(state.key))
		if !ok {
			continue
		}
		r.grow()
		r.totals.Loaded++
		if state.limit == penalty.Text {
			if _, d := (&penalty.Rule{}).Take(state.word, r.instant(first), 1, 0); d.RetryAfter > 0 {
				r.accounts[key].blockedUntil = first + int64(d.RetryAfter)
			}
			continue
		}
		for _, s := range r.scenarios {
			for i, limit := range s.limits {
				if !s.isGauge && limit.String() == state.limit {
					s.words(&r.ledger, key)[i] = min(state.word, policy.MaxWord)
				}
			}
		}
	}
}

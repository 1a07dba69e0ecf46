package replay

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/ral-limiter/ral/internal/core/statefile"
)

// KeyState is what a key owed, or until when it was blocked, when an engine was saved.
type KeyState struct {
	key, limit string
	word       uint64
}

// ReadState reads a state that engine.Engine.Save wrote. Its keys must be strings, since a record has others in
// another form.
func ReadState(reader io.Reader) (all []KeyState, err error) {
	from, err := statefile.NewReader(reader)
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

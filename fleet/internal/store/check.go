package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Check asks Redis whether a limit is safe there. It returns ErrEvictionPolicy if Redis may drop
// keys that still count, ErrFull, ErrReadOnly for a replica, ErrTooOld, or ErrUnchecked if Redis does
// not allow the question.
//
// In a cluster it asks every node, and prefers a node's fault to ErrUnchecked of another. Nodes
// that do not answer within wait are left out, since calls of keys on other nodes go on. If no node
// answers, the error is ErrAsking.
func (s *Store) Check(ctx context.Context, wait time.Duration) error {
	if s.client.Mode() != rueidis.ClientModeCluster {
		return check(ctx, s.client, true)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return worst(askNodes(ctx, s.client.Nodes(), func(node string, client rueidis.Client) (struct{}, error) {
		// Some nodes are replicas, which the client does not write to.
		err := check(ctx, client, false)
		if err != nil {
			err = fmt.Errorf("%w (%s)", err, node)
		}
		return struct{}{}, err
	}))
}

// worst returns the result of Check from the answers of the nodes.
func worst(answers iter.Seq2[struct{}, error]) error {
	var unfit, unchecked error
	away, answered := errNoNode, false
	for _, err := range answers {
		switch {
		case errors.Is(err, ErrAsking):
			away = err
			continue
		case errors.Is(err, ErrUnchecked):
			unchecked = err
		case err != nil:
			unfit = err
		}
		answered = true
	}
	switch {
	case unfit != nil:
		return unfit
	case !answered:
		return away
	}
	return unchecked
}

var errNoNode = fmt.Errorf("%w: no node of the cluster answers", ErrAsking)

// askNodes asks all nodes of a cluster at once, and returns the answers as they come. When ctx ends,
// each node that has not answered gets the error of ctx, since a client that connects ignores ctx.
func askNodes[A any](ctx context.Context, nodes map[string]rueidis.Client, ask func(node string, client rueidis.Client) (A, error)) iter.Seq2[A, error] {
	type answer struct {
		value A
		err   error
	}
	answers := make(chan answer, len(nodes))
	for node, client := range nodes {
		go func() {
			value, err := ask(node, client)
			answers <- answer{value, err}
		}()
	}
	return func(yield func(A, error) bool) {
		for range nodes {
			var a answer
			select {
			case a = <-answers:
			case <-ctx.Done():
				a.err = fmt.Errorf("%w: %w", ErrAsking, ctx.Err())
			}
			if !yield(a.value, a.err) {
				return
			}
		}
	}
}

func check(ctx context.Context, client rueidis.Client, primary bool) error {
	text, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if redis, ok := rueidis.IsRedisErr(err); ok && strings.HasPrefix(redis.Error(), "NOPERM") {
		return fmt.Errorf("%w: %w", ErrUnchecked, err)
	}
	if err != nil {
		return classify(err, "INFO")
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	if info["redis_version"] == "" || info["maxmemory"] == "" || info["maxmemory_policy"] == "" {
		return fmt.Errorf("%w: INFO does not tell redis_version, maxmemory and maxmemory_policy", ErrUnchecked)
	}
	var faults []error
	if text := info["redis_version"]; older(text, 6, 2) {
		faults = append(faults, fmt.Errorf("%w (it is %s)", ErrTooOld, text))
	}
	if text := info["maxmemory_policy"]; info["maxmemory"] != "0" && text != "noeviction" {
		faults = append(faults, fmt.Errorf("%w (its maxmemory-policy is %s, its maxmemory %s)", ErrEvictionPolicy, text, info["maxmemory"]))
	}
	switch replica := info["role"] == "slave"; {
	case replica && primary:
		faults = append(faults, ErrReadOnly)
	case !replica && isFull(info):
		faults = append(faults, ErrFull)
	}
	return errors.Join(faults...)
}

// isFull reports whether Redis uses more than its maxmemory. It counts the memory as Redis does before a write.
func isFull(info map[string]string) bool {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(info[name], 10, 64)
		return n
	}
	limit := number("maxmemory")
	return limit > 0 && number("used_memory")-number("mem_not_counted_for_evict") > limit
}

func older(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(first)
	b, _ := strconv.Atoi(second)
	return a < major || a == major && b < minor
}

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ral-limiter/ral/fleet/internal/guard"
	"github.com/ral-limiter/ral/fleet/internal/store"
	"github.com/ral-limiter/ral/policy"
)

const (
	// beat is how often a server says that it is there. Redis then counts the server for lifetime.
	beat     = time.Second
	lifetime = 3 * beat
	// remembered is how many beats a server that is gone still counts for shares. A share too small
	// for a minute costs part of the limit in an outage; too large, shares exceed the limit. A
	// restarted or cut off server is back within a minute. A server that left is forgotten after
	// that minute; after a death the roll remembers it for a minute, and then each server the
	// roll's count. Only beats count, so an outage makes no server forget.
	remembered = 60
	// deploying is how long servers of one Name may keep different limits, for a rolling deploy.
	deploying = 10 * time.Minute
)

// heartbeat says that the server is there, and counts the servers. heartbeat shows the breaker how
// Redis is while no calls come; of a cluster, not by the node of the roll alone.
func (k *keeper) heartbeat(budget time.Duration) error {
	remote, config := k.remote.Load(), k.config
	config.Policy = k.Limit()
	roll, err := guard.DoPatiently(k.ctx, k.guard, budget, func(ctx context.Context) (store.Roll, error) {
		roll, err := remote.store.Heartbeat(ctx, store.Beat{ID: k.id, TTL: lifetime, Keep: remembered * beat, Limit: config.text()})
		var said *rueidis.RedisError
		if countsAsFailure(err) && k.clustered() && !errors.As(err, &said) && !countsAsFailure(remote.store.Check(ctx, budget/2)) {
			return store.Roll{}, errNoRoll
		}
		return roll, err
	})
	if err != nil {
		return err
	}
	k.servers.Store(int64(roll.Present))
	if k.config.Outage == FallbackShare {
		servers := max(k.counts.add(time.Now(), roll.Remembered), k.config.Servers, 1)
		k.divisor.Store(int64(servers))
		for _, terms := range k.shares() {
			terms.local.Heard(roll.Now)
			// Serve fails only for limits without shares.
			_ = terms.local.Serve(servers)
		}
	}
	k.compare(config, roll)
	return nil
}

// errNoRoll: of a cluster only the node of the roll is away. The last count holds.
var errNoRoll = errors.New("the node of the cluster that counts servers is away")

// leave takes the server off the roll. If that does not arrive, the server counts as dead.
func (k *keeper) leave() {
	_, _ = guard.Do(context.Background(), k.guard, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, k.remote.Load().store.Leave(ctx, k.id)
	})
}

// counts holds the last beats' counts. After a start or reconnection, Redis may have lost the roll
// and count only servers that beat before. Dividing by the maximum shrinks shares at once, and
// grows them after every server had time to beat.
type counts struct {
	last [remembered + 1]int
	// since is when the first of the counts was added.
	since time.Time
}

// add adds a count and returns the highest. Only the highest count of a beat is kept.
func (c *counts) add(now time.Time, servers int) int {
	if now.Sub(c.since) >= beat {
		copy(c.last[1:], c.last[:])
		c.last[0], c.since = 0, now
	}
	c.last[0] = max(c.last[0], servers)
	return slices.Max(c.last[:])
}

// text returns the epoch, mode and limit, on which servers of one Name must agree.
func (c Config) text() string {
	mode := "exact"
	if c.Mode == Leased {
		mode = "leased"
	}
	text := strconv.FormatInt(c.Epoch.Unix(), 10) + " " + mode + " " + c.Policy.String()
	if c.also != nil {
		text += c.also()
	}
	return text
}

// shownLimit formats such a text for people, with its first appearance.
func shownLimit(keptLimit store.KeptLimit, epoch time.Time) string {
	counted, text, _ := strings.Cut(keptLimit.Text, " ")
	from, _ := strconv.ParseInt(counted, 10, 64)
	return fmt.Sprintf("%q (of epoch %s, first seen %s)", text,
		time.Unix(from, 0).UTC().Format(time.RFC3339), epoch.Add(time.Duration(keptLimit.Since)).UTC().Format(time.RFC3339))
}

// compare tells of limits that differ: in one epoch a deploy at first, and later an error.
func (k *keeper) compare(config Config, roll store.Roll) {
	if len(roll.Limits) == 1 && roll.Limits[0].Text == config.text() {
		k.agreedAt = roll.Now
		k.agreed(config.Policy.String())
		if config.onAgreed != nil {
			config.onAgreed(roll.Limits[0].Text)
		}
	}
	err, wrong := differing(config, roll, k.agreedAt)
	kind := LimitDeploying
	switch {
	case err == nil:
		kind = LimitAgreed
		k.conflict.Store(nil)
	case wrong:
		kind = LimitConflict
		k.conflict.Store(&err)
	default:
		k.conflict.Store(nil)
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said == k.differs {
		return
	}
	k.differs = said
	k.config.OnEvent(Event{Kind: kind, Err: err})
}

// differing returns how the servers' limits differ, or nil, and whether that is an error rather
// than a deploy. agreed is the time at which they last agreed, or 0: alternating limits may each be
// old.
func differing(config Config, roll store.Roll, agreed policy.Instant) (err error, wrong bool) {
	own := slices.IndexFunc(roll.Limits, func(limit store.KeptLimit) bool { return limit.Text == config.text() })
	if own < 0 || len(roll.Limits) == 1 {
		return nil, false
	}
	mine := roll.Limits[own]
	others := slices.Delete(slices.Clone(roll.Limits), own, own+1)
	slices.SortFunc(others, func(a, b store.KeptLimit) int { return cmp.Compare(b.Since, a.Since) })
	texts := make([]string, len(others))
	for i, limit := range others {
		texts[i] = shownLimit(limit, config.Epoch)
		if epoch, _, _ := strings.Cut(limit.Text, " "); epoch != strconv.FormatInt(config.Epoch.Unix(), 10) {
			wrong = true
		}
	}
	which := "a newer limit is being deployed: this server still keeps %s, others %s"
	switch {
	case wrong:
		which = "this server keeps %s, others %s"
	case mine.Since >= others[0].Since:
		which = "this server's limit is the newer one: it keeps %s, others still %s"
	}
	said := fmt.Sprintf(which, shownLimit(mine, config.Epoch), strings.Join(texts, ", "))
	if wrong {
		return fmt.Errorf("%w; they count from different epochs, which gives the words of all keys other meanings; give one another Name: %s", ErrLimits, said), true
	}
	if time.Duration(roll.Now-max(mine.Since, others[0].Since, agreed)) >= deploying {
		return fmt.Errorf("%w, for more than %v; finish the deploy, or give one another Name: %s", ErrLimits, deploying, said), true
	}
	return fmt.Errorf("%w, as in a deploy: %s", ErrLimits, said), false
}

// agreed ends a SetPolicy once all counted servers keep the policy of that text.
func (l *Limiter) agreed(text string) {
	change := &l.change
	change.mu.Lock()
	defer change.mu.Unlock()
	own := l.own.Load()
	if len(change.before) == 0 || own.policy.String() != text {
		return
	}
	limit, err := l.maker.Limit(own.policy)
	if err != nil {
		// The limit was made before.
		return
	}
	change.before = nil
	_ = l.holdTo(own.policy, limit)
}

package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ral-limiter/ral/engine"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
	"github.com/ral-limiter/ral/limits"
	"github.com/ral-limiter/ral/policy"
)

const (
	byOwed    = "owed"
	byRefused = "refused"
	byWarned  = "warned"
)

// maxRefused bounds the keys whose refusals are shown beside their use.
const maxRefused = 1000

func (l *keyed[K]) list(ctx context.Context, by string, n int, after string) (list pagejson.List, err error) {
	switch {
	case l.engine == nil:
		return list, fmt.Errorf("%w: this limiter does not list its keys", errVerb)
	case by == byRefused && after == "":
		return l.refused(n), nil
	case by == byOwed:
		return l.owed(ctx, n, after)
	case by == byWarned && after == "":
		return l.warned(n), nil
	case by == byRefused || by == byWarned:
		return list, fmt.Errorf("%w: after is %.40q, want none: a list of %q is one page", errRequest, after, by)
	}
	return list, fmt.Errorf("%w: by is %.40q, want %q, %q or %q", errRequest, by, byOwed, byRefused, byWarned)
}

func (l *keyed[K]) owed(ctx context.Context, n int, after string) (list pagejson.List, err error) {
	var cursor engine.OwingCursor
	if err := cursor.UnmarshalText([]byte(after)); err != nil {
		return list, fmt.Errorf("%w: after is %.40q, want the next of an earlier page", errRequest, after)
	}
	list = pagejson.List{Limit: l.called, By: byOwed, Rows: []pagejson.Row{}}
	walk, first, err := l.walks.page(ctx, cursor)
	if err != nil {
		return list, err
	}
	if walk == nil {
		list.Pending = true
		return list, nil
	}
	keys := walk.page.Keys[first:]
	next := walk.page.Next
	if len(keys) > n {
		keys, next = keys[:n], keys[n-1].After
	}
	text, err := next.MarshalText()
	if err != nil {
		return list, err
	}
	age := walk.page.Age + time.Since(walk.end)
	list.Total, list.Next, list.Age = uint64(walk.page.Total), string(text), age.Seconds()
	most := l.engine.MostRefused(maxRefused)
	list.For = most.For.Seconds()
	refusals := make(map[K]engine.RefusedKey[K], len(most.Keys))
	for _, refusedKey := range most.Keys {
		refusals[refusedKey.Key] = refusedKey
	}
	for i := range keys {
		owingKey := &keys[i]
		row := pagejson.Row{
			Blocked: l.engine.Blocked(owingKey.Key).Seconds(), Share: owingKey.Share, Remaining: owingKey.Remaining,
			Returns: max(0, owingKey.Next-age).Seconds(), Full: max(0, owingKey.ResetAfter-age).Seconds(),
		}
		refusedRow(&row, refusals[owingKey.Key])
		if owingKey.Next == policy.Never {
			row.Returns = -1
		}
		row.ID, row.Key = l.show(owingKey.Key)
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

func refusedRow[K comparable](row *pagejson.Row, refusedKey engine.RefusedKey[K]) {
	row.Refused, row.Least, row.Most, row.Last = refusedKey.Refusals, refusedKey.Least, refusedKey.Most, refusedKey.Last.Seconds()
}

func (l *keyed[K]) refused(n int) (list pagejson.List) {
	most := l.engine.MostRefused(n)
	list = pagejson.List{Limit: l.called, By: byRefused, Rows: make([]pagejson.Row, len(most.Keys)), Total: most.Total, For: most.For.Seconds(), OthersMost: most.OthersMost}
	for i, refusedKey := range most.Keys {
		row := &list.Rows[i]
		row.Blocked = l.engine.Blocked(refusedKey.Key).Seconds()
		refusedRow(row, refusedKey)
		row.ID, row.Key = l.show(refusedKey.Key)
	}
	return list
}

func (l *keyed[K]) warned(n int) pagejson.List {
	list := pagejson.List{Limit: l.called, By: byWarned, Rows: []pagejson.Row{}, Total: l.engine.Stats().Warnings}
	for _, w := range l.engine.LatestWarnings(n) {
		row := pagejson.Row{Share: w.Share, Remaining: w.Decision.Remaining, Last: time.Since(w.Time).Seconds()}
		row.ID, row.Key = l.show(w.Key)
		list.Rows = append(list.Rows, row)
	}
	return list
}

func (l *keyed[K]) explain(ctx context.Context, request pagejson.KeyRequest) (explanation pagejson.Explanation, err error) {
	key, err := l.find(request)
	if err != nil {
		return explanation, err
	}
	x, err := limits.Explain(ctx, l.limiter, key)
	if err != nil {
		return explanation, err
	}
	explanation = pagejson.Explanation{
		Limit: l.called, Known: x.Known, Allowed: x.Allowed, Retry: retry(&x), Wait: x.Wait.Seconds(), Blocked: x.Blocked.Seconds(),
		Waiting: x.Waiting, Parts: parts(&x), Binding: max(x.Binding, -1), Words: timeless(x).String(),
	}
	// The block may belong to a limiter that Explain only looks at.
	if blocked := l.blocked(ctx, key).Seconds(); blocked > explanation.Blocked {
		explanation.Blocked = blocked
	}
	for c := x.Candidate; c != nil; c = c.Candidate {
		explanation.Candidates = append(explanation.Candidates, pagejson.Candidate{Allowed: c.Allowed, Retry: retry(c), Parts: parts(c)})
	}
	explanation.ID, explanation.Key = l.show(key)
	return explanation, nil
}

// timeless returns an explanation without the times that the page shows beside its words. The age of
// the oldest unit in use stays.
func timeless(explanation limits.Explanation) limits.Explanation {
	explanation.Wait, explanation.Blocked, explanation.Returns, explanation.Each = 0, 0, nil, slices.Clone(explanation.Each)
	if explanation.RetryAfter != policy.Never {
		explanation.RetryAfter = 0
	}
	for i := range explanation.Each {
		explanation.Each[i] = timeless(explanation.Each[i])
	}
	if explanation.Candidate != nil {
		candidate := timeless(*explanation.Candidate)
		explanation.Candidate = &candidate
	}
	return explanation
}

func parts(explanation *limits.Explanation) (all []pagejson.Part) {
	for i := range explanation.Each {
		all = append(all, parts(&explanation.Each[i])...)
	}
	if all != nil {
		return all
	}
	part := pagejson.Part{
		Name: explanation.Name, Words: policy.Describe(explanation.Limit), Used: explanation.Used, Units: explanation.Of, Remaining: explanation.Remaining,
		Allowed: explanation.Allowed, Retry: retry(explanation), Full: explanation.ResetAfter.Seconds(), Returns: []pagejson.Return{},
	}
	if explanation.Limit != nil {
		part.Policy = explanation.Limit.String()
	}
	if explanation.Source() != limits.SourceNone {
		part.Source = explanation.Source().String()
	}
	for _, r := range explanation.Returns {
		part.Returns = append(part.Returns, pagejson.Return{After: r.After.Seconds(), Remaining: r.Remaining})
	}
	return []pagejson.Part{part}
}

func retry(explanation *limits.Explanation) float64 {
	if explanation.RetryAfter == policy.Never {
		return -1
	}
	return explanation.RetryAfter.Seconds()
}

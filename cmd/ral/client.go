package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ral-limiter/ral/cmd/ral/internal/report"
	"github.com/ral-limiter/ral/internal/adapter/pagejson"
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 16 << 20

// client asks a handler of package inspect.
type client struct {
	base *url.URL // ends with a slash
	http *http.Client
}

func newClient(address string) (*client, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("URL is %.200q, want the page's, such as "+defaultURL, address)
	}
	base.RawQuery, base.Fragment = "", ""
	if !strings.HasSuffix(base.Path, "/") {
		base.Path += "/"
	}
	return &client{base, &http.Client{Timeout: 10 * time.Second}}, nil
}

func (c *client) get(ctx context.Context, path string, query url.Values, to any) (err error) {
	target := c.base.JoinPath(path)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		var fault pagejson.Fault
		if json.Unmarshal(body, &fault) != nil || fault.Error == "" {
			fault.Error = "is package inspect mounted there?"
		}
		return fmt.Errorf("%s: %s: %s", target.Redacted(), resp.Status, report.Printable(fault.Error))
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("%s: is package inspect mounted there? %w", target.Redacted(), err)
	}
	return nil
}

type view struct {
	overview      pagejson.Overview
	chosen        string // the limit that the lists are of, or "" if none has lists
	owed, refused pagejson.List
}

// look asks for all limits, puts those that are wrong first, and asks for the keys of a limit: by default the first
// with lists.
func (c *client) look(ctx context.Context, limit string, rows int) (view view, err error) {
	if err := c.get(ctx, "limits", nil, &view.overview); err != nil {
		return view, err
	}
	all := view.overview.Limits
	slices.SortStableFunc(all, func(a, b pagejson.LimitSummary) int {
		return cmp.Compare(min(len(health(&b)), 1), min(len(health(&a)), 1))
	})
	i := slices.IndexFunc(all, func(summary pagejson.LimitSummary) bool { return limit == summary.Name || limit == "" && summary.Lists })
	switch {
	case i < 0 && limit != "":
		return view, fmt.Errorf("there is no limit %q", limit)
	case i < 0:
		return view, nil
	}
	if view.chosen = all[i].Name; !all[i].Lists {
		return view, nil
	}
	query := url.Values{"limit": {view.chosen}, "by": {"owed"}, "n": {strconv.Itoa(rows)}}
	if err := c.get(ctx, "keys", query, &view.owed); err != nil {
		return view, err
	}
	query.Set("by", "refused")
	return view, c.get(ctx, "keys", query, &view.refused)
}

// health returns what is wrong with a limit, or "". Programs of earlier versions tell no alarms.
func health(summary *pagejson.LimitSummary) string {
	if len(summary.Alarms) == 0 {
		return strings.Trim(summary.Health+"; "+summary.Trouble, "; ")
	}
	var all []string
	for _, alarm := range summary.Alarms {
		if alarm.ID != "" {
			alarm.Words += ", most often " + named(&pagejson.Row{ID: alarm.ID, Key: alarm.Key})
		}
		all = append(all, alarm.Words)
	}
	return strings.Join(all, "; ")
}

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
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		var f pagejson.Fault
		if json.Unmarshal(body, &f) != nil || f.Error == "" {
			f.Error = "is package inspect mounted there?"
		}
		return fmt.Errorf("%s: %s: %s", target.Redacted(), resp.Status, report.Printable(f.Error))
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
func (c *client) look(ctx context.Context, limit string, rows int) (v view, err error) {
	if err := c.get(ctx, "limits", nil, &v.overview); err != nil {
		return v, err
	}
	all := v.overview.Limits
	slices.SortStableFunc(all, func(a, b pagejson.LimitSummary) int {
		return cmp.Compare(min(len(health(&b)), 1), min(len(health(&a)), 1))
	})
	i := slices.IndexFunc(all, func(l pagejson.LimitSummary) bool { return limit == l.Name || limit == "" && l.Lists })
	switch {
	case i < 0 && limit != "":
		return v, fmt.Errorf("there is no limit %q", limit)
	case i < 0:
		return v, nil
	}
	if v.chosen = all[i].Name; !all[i].Lists {
		return v, nil
	}
	query := url.Values{"limit": {v.chosen}, "by": {"owed"}, "n": {strconv.Itoa(rows)}}
	if err := c.get(ctx, "keys", query, &v.owed); err != nil {
		return v, err
	}
	query.Set("by", "refused")
	return v, c.get(ctx, "keys", query, &v.refused)
}

// health returns what is wrong with a limit, or "". Programs of earlier versions tell no alarms.
func health(l *pagejson.LimitSummary) string {
	if len(l.Alarms) == 0 {
		return strings.Trim(l.Health+"; "+l.Trouble, "; ")
	}
	var all []string
	for _, a := range l.Alarms {
		if a.ID != "" {
			a.Words += ", most often " + named(&pagejson.Row{ID: a.ID, Key: a.Key})
		}
		all = append(all, a.Words)
	}
	return strings.Join(all, "; ")
}

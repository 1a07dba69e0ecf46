package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ral-limiter/ral/inspect"
)

// An operator on this machine sees the limits, and with the token changes keys of both kinds.
func TestOperatorLooksInside(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	url := start(t, "-token", token, "-proxies", "127.0.0.0/8,::1/128")
	for range 5 {
		ask(t, http.DefaultClient, url+"1/hello", "198.51.100.1", "secret-of-a-client")
	}
	send := func(method, path, body, from string, to any) int {
		r, err := http.NewRequest(method, url+"debug/ral/"+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("X-Forwarded-For", from)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		if resp.StatusCode == http.StatusOK {
			require.NoError(t, json.Unmarshal(text, to), "%s", text)
		}
		return resp.StatusCode
	}
	const operator = "127.0.0.1"
	var o inspect.Overview
	require.Equal(t, http.StatusOK, send("GET", "limits", "", operator, &o))
	require.Len(t, o.Limits, 3)
	assert.Equal(t, "address, server 1", o.Limits[0].Name)
	assert.Equal(t, 5.0, o.Limits[0].Figures["Admitted"])
	assert.Equal(t, 5.0, o.Limits[2].Figures["Admitted"])
	assert.True(t, o.Hashed)

	for limit, key := range map[string]string{"address, server 1": "198.51.100.1", "key, server 1": "secret-of-a-client"} {
		request, err := json.Marshal(inspect.ChangeRequest{KeyRequest: inspect.KeyRequest{Limit: limit, Key: key}, Do: "charge", Units: 30})
		require.NoError(t, err)
		var x inspect.Explanation
		require.Equal(t, http.StatusOK, send("POST", "change", string(request), operator, &x), limit)
		assert.False(t, x.Allowed)
		assert.Equal(t, http.StatusTooManyRequests, ask(t, http.DefaultClient, url+"1/hello", "198.51.100.1", "secret-of-a-client").status)
		request = []byte(strings.Replace(strings.Replace(string(request), `"charge"`, `"reset"`, 1), `,"units":30`, "", 1))
		require.Equal(t, http.StatusOK, send("POST", "change", string(request), operator, &x), limit)
		assert.True(t, x.Allowed)
	}
	assert.Equal(t, http.StatusForbidden, send("GET", "limits", "", "198.51.100.1", nil), "a client is no operator")
}

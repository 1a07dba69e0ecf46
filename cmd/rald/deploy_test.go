package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const deployed = "../../deploy"

func deployedText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployed, name))
	require.NoError(t, err)
	return string(text)
}

func documents(t *testing.T, name string) (all []any) {
	t.Helper()
	for from := yaml.NewDecoder(strings.NewReader(deployedText(t, name))); ; {
		var one any
		err := from.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, one)
	}
}

// at follows a path of keys and indexes, as a.b.0, in a YAML document to a value, or nil if it is
// missing.
func at(value any, path string) any {
	for step := range strings.SplitSeq(path, ".") {
		switch node := value.(type) {
		case map[string]any:
			value = node[step]
		case []any:
			i, _ := strconv.Atoi(step)
			value = node[i]
		default:
			return nil
		}
	}
	return value
}

func textAt(value any, path string) string { return fmt.Sprint(at(value, path)) }

// table returns the texts at two paths in each part of a list.
func table(list any, name, value string) map[string]string {
	all := map[string]string{}
	for _, one := range list.([]any) {
		all[textAt(one, name)] = textAt(one, value)
	}
	return all
}

// instructions returns the Dockerfile's lines with an instruction, without it.
func instructions(t *testing.T, instruction string) (all []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`(?m)^`+instruction+` (.*)$`).FindAllStringSubmatch(deployedText(t, "Dockerfile"), -1) {
		all = append(all, found[1])
	}
	require.NotEmpty(t, all, instruction)
	return all
}

// inImage parses rald's settings in a container of the image, and checks the files in its directory.
func inImage(t *testing.T, variables map[string]string, dir string) (s settings, ports map[string]string) {
	t.Helper()
	env := environment(strings.Fields(instructions(t, "ENV")[0]))
	for name, value := range variables {
		env = append(env, name+"="+value)
	}
	s, err := parse([]string{dir}, env, io.Discard)
	require.NoError(t, err)
	_, err = s.log.logger(io.Discard)
	require.NoError(t, err)
	require.NoError(t, check([]string{dir}, io.Discard, io.Discard))
	require.NoError(t, check([]string{"-envoy", s.envoy.dir}, io.Discard, io.Discard))
	ports = map[string]string{}
	for name, address := range map[string]string{"resp": s.listen, "check": s.check.listen, "envoy": s.envoy.listen, "metrics": s.admin.metrics} {
		host, port, err := net.SplitHostPort(address)
		require.NoError(t, err, name)
		assert.Empty(t, host, name)
		ports[name] = port
	}
	assert.Subset(t, strings.Fields(instructions(t, "EXPOSE")[0]), slices.Collect(maps.Values(ports)))
	assert.Equal(t, s.envoy.clients, s.check.clients)
	assert.Equal(t, s.envoy.clients, s.admin.clients)
	return s, ports
}

// trusts is a line of check.yaml.
func trusts(n networks) string { return "trusted: [" + strings.ReplaceAll(n.String(), ",", ", ") + "]" }

// Their comments, too, name settings that exist.
func TestDeployNamesOnlyKnownVariables(t *testing.T) {
	known := slices.Clone(otherVariables)
	new(settings).flags(nil).VisitAll(func(f *flag.Flag) { known = append(known, variable(f.Name)) })
	files := 0
	require.NoError(t, filepath.WalkDir(deployed, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		for _, name := range regexp.MustCompile(`RALD_[A-Z_]*[A-Z]`).FindAllString(string(text), -1) {
			assert.Contains(t, known, name, path)
		}
		return err
	}))
	assert.Greater(t, files, 10)
}

// Promise: The image needs only a password from its environment.
func TestImageNeedsOnlyAPassword(t *testing.T) {
	require.Equal(t, []string{`["/rald"]`}, instructions(t, "ENTRYPOINT"))
	require.Contains(t, instructions(t, "HEALTHCHECK")[0], ` CMD ["/rald", "health"]`)
	image := environment(strings.Fields(instructions(t, "ENV")[0]))
	s, err := parse(nil, append(image, havePassword...), os.Stderr)
	require.NoError(t, err)
	require.Equal(t, []string{":7379", "/var/lib/rald"}, []string{s.listen, s.keys.Dir})
	_, err = parse(nil, image, os.Stderr)
	require.ErrorContains(t, err, "RALD_PASSWORD")
	byDefault, err := parse(nil, noEnv, io.Discard)
	require.NoError(t, err)
	for _, address := range []string{byDefault.listen, byDefault.check.listen, byDefault.admin.listen, byDefault.envoy.listen} {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		assert.Contains(t, strings.Fields(instructions(t, "EXPOSE")[0]), port)
	}
}

// systemd passes rald's flags, and waits for its end.
func TestServiceUnitPassesFlagsAndWaits(t *testing.T) {
	unit := map[string]string{}
	for line := range strings.Lines(deployedText(t, "rald.service")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		unit[name] = value
	}
	args := slices.DeleteFunc(strings.Fields(unit["ExecStart"])[1:], func(arg string) bool { return arg == "$RALD_FLAGS" })
	s, err := parse(args, environment{"STATE_DIRECTORY=/var/lib/" + unit["StateDirectory"]}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, []string{"/etc/" + unit["ConfigurationDirectory"], "/var/lib/rald"}, []string{s.dir, s.keys.Dir})
	stop, err := time.ParseDuration(unit["TimeoutStopSec"] + "s")
	require.NoError(t, err)
	assert.Greater(t, stop, 2*s.drain)
}

// Promise: rald accepts the settings and rules in deploy.
func TestComposeSettingsAreAccepted(t *testing.T) {
	file := documents(t, "compose.yaml")[0]
	rald := at(file, "services.rald")
	env := map[string]string{}
	for name, value := range at(rald, "environment").(map[string]any) {
		env[name] = fmt.Sprint(value)
	}
	s, ports := inImage(t, env, filepath.Join(deployed, "rald"))
	assert.Equal(t, textAt(file, "networks.limits.ipam.config.0.subnet"), s.check.clients.String())
	assert.Contains(t, deployedText(t, "rald/check.yaml"), trusts(s.check.clients))
	// TestDocumentedRulesBehindProxies runs nginx.conf.
	assert.Contains(t, deployedText(t, "nginx.conf"), "server rald:"+ports["check"]+";")
	assert.Contains(t, deployedText(t, "envoy.yaml"), "{address: rald, port_value: "+ports["envoy"]+"}")
	for path, want := range map[string]string{
		"command": "[/etc/rald]", "volumes": "[./rald:/etc/rald:ro state:" + s.keys.Dir + "]",
		// At other addresses strangers would have the gateway's address.
		"ports": "[127.0.0.1:7379:" + ports["resp"] + "]",
	} {
		assert.Equal(t, want, textAt(rald, path), path)
	}
	grace, err := time.ParseDuration(textAt(rald, "stop_grace_period"))
	require.NoError(t, err)
	assert.Greater(t, grace, 2*s.drain)
	assert.Equal(t, "./nginx.conf:/etc/nginx/conf.d/default.conf:ro", textAt(file, "services.nginx.volumes.0"))
	assert.Equal(t, "./envoy.yaml:/etc/envoy/envoy.yaml:ro", textAt(file, "services.envoy.volumes.0"))
}

// tools/manifests checks them against their schemas.
func TestKubernetesManifestsAgreeWithSettings(t *testing.T) {
	all := map[string]any{}
	for _, m := range append(documents(t, "kubernetes/rald.yaml"), documents(t, "kubernetes/servicemonitor.yaml")...) {
		all[textAt(m, "kind")+" "+textAt(m, "metadata.name")] = m
	}
	service, set, monitor := all["Service rald"], all["StatefulSet rald"], all["ServiceMonitor rald"]
	pod := at(set, "spec.template.spec")
	c := at(pod, "containers.0")
	mounts, root := table(at(c, "volumeMounts"), "name", "mountPath"), t.TempDir()
	for volume, config := range table(at(pod, "volumes"), "name", "configMap.name") {
		for name, text := range at(all["ConfigMap "+config], "data").(map[string]any) {
			write(t, root, filepath.Join(mounts[volume], name), text.(string))
		}
	}
	env := table(at(c, "env"), "name", "value")
	env["RALD_ENVOY"], env["RALD_PASSWORD"] = filepath.Join(root, env["RALD_ENVOY"]), "secret"
	s, ports := inImage(t, env, filepath.Join(root, textAt(c, "args.0")))
	assert.Contains(t, fmt.Sprint(all["ConfigMap rald"]), trusts(s.check.clients))
	for _, rules := range []string{at(all["ConfigMap rald"], "data").(map[string]any)["check.yaml"].(string), deployedText(t, "rald/check.yaml")} {
		assert.Contains(t, rules, "proxy: nginx")
		assert.Contains(t, rules, "once: X-Original-Id ", "an internal redirect counts once")
	}
	assert.NotContains(t, fmt.Sprint(c), "subPath:", "which is never reloaded")
	assert.Equal(t, mounts[textAt(set, "spec.volumeClaimTemplates.0.metadata.name")], s.keys.Dir)
	_, group, _ := strings.Cut(instructions(t, "USER")[0], ":")
	assert.Greater(t, time.Duration(at(pod, "terminationGracePeriodSeconds").(int))*time.Second, 2*s.drain)

	assert.Equal(t, ports, table(at(c, "ports"), "name", "containerPort"))
	assert.Equal(t, ports, table(at(service, "spec.ports"), "targetPort", "port"))
	labels := textAt(set, "spec.template.metadata.labels")
	for _, w := range []struct {
		in         any
		path, want string
	}{
		// The group may write the state's volume.
		{pod, "securityContext.fsGroup", group},
		{c, "startupProbe.httpGet", "map[path:/healthz port:metrics]"},
		{c, "readinessProbe.tcpSocket", "map[port:resp]"},
		{c, "livenessProbe.tcpSocket", "map[port:metrics]"},
		{set, "spec.selector.matchLabels", labels},
		{service, "spec.selector", labels},
		{service, "metadata.labels", labels},
		{monitor, "spec.selector.matchLabels", labels},
		{monitor, "spec.endpoints.0", "map[interval:15s path:/metrics port:metrics]"},
	} {
		assert.Equal(t, w.want, textAt(w.in, w.path), w.path)
	}
}

// systemd accepts the units.
func TestSystemdAcceptsTheUnitsWithClients(t *testing.T) {
	needs(t, "systemd-analyze")
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	// The program must exist.
	program, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	dir := t.TempDir()
	args := []string{"verify"}
	for _, name := range []string{"rald.service", "rald.socket"} {
		write(t, dir, name, strings.ReplaceAll(deployedText(t, name), "/usr/local/bin/rald", program))
		args = append(args, filepath.Join(dir, name))
	}
	out, err := exec.Command(analyze, args...).CombinedOutput()
	assert.NoError(t, err, "%s", out)
	assert.NotContains(t, string(out), dir, "a warning about the units")
}

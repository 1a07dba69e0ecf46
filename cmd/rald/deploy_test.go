package main

import (
	"debug/elf"
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
	"runtime"
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

var build = flag.Bool("build", false, "run the build line of the Dockerfile")

func deployedText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployed, name))
	require.NoError(t, err)
	return string(text)
}

// part is a part of a YAML document.
type part struct{ value any }

func documents(t *testing.T, name string) (all []part) {
	t.Helper()
	for from := yaml.NewDecoder(strings.NewReader(deployedText(t, name))); ; {
		var one part
		err := from.Decode(&one.value)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, one)
	}
}

// at follows a path of keys and indexes, as a.b.0, to a part that is nil if it is missing.
func (p part) at(path string) part {
	for step := range strings.SplitSeq(path, ".") {
		switch value := p.value.(type) {
		case map[string]any:
			p.value = value[step]
		case []any:
			i, _ := strconv.Atoi(step)
			p.value = value[i]
		default:
			p.value = nil
		}
	}
	return p
}

func (p part) String() string { return fmt.Sprint(p.value) }

// table returns the texts at two paths in each part of a list.
func (p part) table(name, value string) map[string]string {
	all := map[string]string{}
	for _, one := range p.value.([]any) {
		all[part{one}.at(name).String()] = part{one}.at(value).String()
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
func TestVariablesInDeploy(t *testing.T) {
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

// The program needs no system files, and the environment only a password.
func TestDockerfile(t *testing.T) {
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

	if !*build {
		t.Skip("-build is not set: it takes half a minute of a processor")
	}
	out := filepath.Join(t.TempDir(), "rald")
	line := instructions(t, "RUN")[0]
	require.Equal(t, 1, strings.Count(line, "/out/rald"))
	cmd := exec.Command("sh", "-c", strings.Replace(line, "/out/rald", out, 1))
	cmd.Dir = "../.."
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	if runtime.GOOS != "linux" {
		return
	}
	program, err := elf.Open(out)
	require.NoError(t, err)
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, libraries)
	for _, part := range program.Progs {
		assert.NotEqual(t, elf.PT_INTERP, part.Type, "it needs a dynamic loader")
	}
}

// systemd passes rald's flags, and waits for its end.
func TestServiceUnit(t *testing.T) {
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
func TestCompose(t *testing.T) {
	file := documents(t, "compose.yaml")[0]
	rald := file.at("services.rald")
	env := map[string]string{}
	for name, value := range rald.at("environment").value.(map[string]any) {
		env[name] = fmt.Sprint(value)
	}
	s, ports := inImage(t, env, filepath.Join(deployed, "rald"))
	assert.Equal(t, file.at("networks.limits.ipam.config.0.subnet").String(), s.check.clients.String())
	assert.Contains(t, deployedText(t, "rald/check.yaml"), trusts(s.check.clients))
	assert.Contains(t, deployedText(t, "nginx.conf"), "server rald:"+ports["check"]+";") // TestNginx runs it
	assert.Contains(t, deployedText(t, "envoy.yaml"), "{address: rald, port_value: "+ports["envoy"]+"}")
	for path, want := range map[string]string{
		"command": "[/etc/rald]", "volumes": "[./rald:/etc/rald:ro state:" + s.keys.Dir + "]", "read_only": "true",
		"ports": "[127.0.0.1:7379:" + ports["resp"] + "]", // at others strangers would have the gateway's address
	} {
		assert.Equal(t, want, rald.at(path).String(), path)
	}
	grace, err := time.ParseDuration(rald.at("stop_grace_period").String())
	require.NoError(t, err)
	assert.Greater(t, grace, 2*s.drain)
	for name, to := range map[string]string{"nginx": "/etc/nginx/conf.d/default.conf", "envoy": "/etc/envoy/envoy.yaml"} {
		host, in, _ := strings.Cut(file.at("services."+name+".volumes.0").String(), ":")
		assert.Equal(t, to+":ro", in)
		assert.FileExists(t, filepath.Join(deployed, host))
	}
}

// mount writes files as Kubernetes mounts a ConfigMap: it exchanges all by the link ..data.
func mount(t *testing.T, dir string, files map[string]any) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "..1"), 0o700))
	require.NoError(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "..1", name), []byte(text.(string)), 0o600))
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
}

// tools/manifests checks them against their schemas.
func TestKubernetes(t *testing.T) {
	all := map[string]part{}
	for _, m := range append(documents(t, "kubernetes/rald.yaml"), documents(t, "kubernetes/servicemonitor.yaml")...) {
		all[m.at("kind").String()+" "+m.at("metadata.name").String()] = m
	}
	service, set, monitor := all["Service rald"], all["StatefulSet rald"], all["ServiceMonitor rald"]
	pod := set.at("spec.template.spec")
	c := pod.at("containers.0")
	mounts, configs, root := c.at("volumeMounts").table("name", "mountPath"), pod.at("volumes").table("name", "configMap.name"), t.TempDir()
	for volume, config := range configs {
		mount(t, filepath.Join(root, mounts[volume]), all["ConfigMap "+config].at("data").value.(map[string]any))
	}
	env := c.at("env").table("name", "value")
	env["RALD_ENVOY"], env["RALD_PASSWORD"] = filepath.Join(root, env["RALD_ENVOY"]), "secret"
	s, ports := inImage(t, env, filepath.Join(root, c.at("args.0").String()))
	assert.Contains(t, all["ConfigMap rald"].String(), trusts(s.check.clients))
	assert.NotContains(t, c.String(), "subPath:", "which is never reloaded")
	assert.Equal(t, mounts[set.at("spec.volumeClaimTemplates.0.metadata.name").String()], s.keys.Dir)
	user, group, _ := strings.Cut(instructions(t, "USER")[0], ":")
	assert.Greater(t, time.Duration(pod.at("terminationGracePeriodSeconds").value.(int))*time.Second, 2*s.drain)

	named := map[string]string{}
	for name := range ports {
		named[name] = name
	}
	assert.Equal(t, ports, c.at("ports").table("name", "containerPort"))
	assert.Equal(t, ports, service.at("spec.ports").table("name", "port"))
	assert.Equal(t, named, service.at("spec.ports").table("name", "targetPort"))
	labels := set.at("spec.template.metadata.labels").String()
	for _, w := range []struct {
		in         part
		path, want string
	}{
		{pod, "securityContext.runAsUser", user},
		{pod, "securityContext.runAsGroup", group},
		{pod, "securityContext.fsGroup", group}, // may write the state's volume
		{c, "securityContext.readOnlyRootFilesystem", "true"},
		{c, "startupProbe.httpGet", "map[path:/healthz port:metrics]"},
		{c, "readinessProbe.tcpSocket", "map[port:resp]"},
		{c, "livenessProbe.tcpSocket", "map[port:metrics]"},
		{set, "spec.selector.matchLabels", labels},
		{service, "spec.selector", labels},
		{service, "spec.type", "ClusterIP"},
		{service, "metadata.labels", labels},
		{monitor, "spec.selector.matchLabels", labels},
		{monitor, "spec.endpoints.0.port", "metrics"},
		{monitor, "spec.endpoints.0.path", "/metrics"},
	} {
		assert.Equal(t, w.want, w.in.at(w.path).String(), w.path)
	}
}

// systemd accepts the units.
func TestUnitsWithClients(t *testing.T) {
	needs(t, "systemd-analyze")
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	program, err := filepath.Abs(os.Args[0]) // the program must exist
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

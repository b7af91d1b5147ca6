package setup

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMistakes checks that the message about a mistake names the file, the field and, if it is known, the line, and that nothing is
// written.
func TestMistakes(t *testing.T) {
	ca := newCA(t)
	cert, key := ca.issue(t, "system:node:kiosk-1")
	other, _ := newCA(t).issue(t, "system:node:kiosk-1")
	user, userKey := ca.issue(t, "somebody")
	cluster := func(lines string) string {
		return head + "cluster:\n  server: https://192.0.2.1:6443\n" + lines
	}
	good := "  ca: " + block(ca.pem)
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":            {"", ": want a document with apiVersion"},
		"another kind":       {strings.Replace(head, "BoardSetup", "Pod", 1), ":2: kind: want BoardSetup"},
		"another version":    {strings.Replace(head, "v1alpha1", "v9", 1), ":1: apiVersion: want islet.dev/v1alpha1"},
		"no YAML":            {head + "a: [\n", ": "},
		"unknown field":      {head + "nmae: x\n", ":3: nmae: unknown field"},
		"twice":              {head + "name: x\nname: y\n", ":4: name: duplicate field"},
		"type":               {head + "network:\n  clusterDNS: 3\n", ":4: network.clusterDNS: "},
		"two documents":      {head + "---\n" + head, ":3: a second document"},
		"name":               {head + "name: Kiosk_1\n", ":3: name: is not a valid node name"},
		"rule":               {head + "name: a-{ip}\n", ":3: name: only {serial} and {mac}"},
		"LED":                {head + "led: ../x\n", ":3: led: "},
		"path":               {head + "edgeConfiguration: ../edge.yaml\n", ":3: edgeConfiguration: "},
		"file is missing":    {head + "kubeletConfiguration: k.yaml\n", ":3: kubeletConfiguration: "},
		"server":             {strings.Replace(cluster(good+"  token: "+token+"\n"), "https", "http", 1), ":4: cluster.server: "},
		"server with a user": {strings.Replace(cluster(good+"  token: "+token+"\n"), "192.", "a:b@192.", 1), ":4: cluster.server: "},
		"server with a path": {strings.Replace(cluster(good+"  token: "+token+"\n"), "6443", "6443/x", 1), ":4: cluster.server: "},
		"no CA":              {cluster("  token: " + token + "\n"), ":3: cluster: want either ca or caHash"},
		"both CAs":           {cluster(good + "  caHash: " + ca.hash + "\n  token: " + token + "\n"), ":3: cluster: want either ca or caHash"},
		"hash":               {cluster("  caHash: sha256:1234\n  token: " + token + "\n"), ":5: cluster.caHash: "},
		"CA of a node":       {cluster("  ca: " + block(cert) + "  token: " + token + "\n"), ":5: cluster.ca: "},
		"CA is a key":        {cluster("  ca: " + block(key) + "  token: " + token + "\n"), ":5: cluster.ca: "},
		"token":              {cluster("  caHash: " + ca.hash + "\n  token: secret\n"), ":6: cluster.token: "},
		"escaped token":      {cluster("  caHash: " + ca.hash + "\n  token: \"\\x61bcdef.0123456789abcdef\"\n"), ":6: cluster.token: write it"},
		"removed token":      {cluster("  caHash: " + ca.hash + "\n  token: " + strings.Repeat("_", 23) + "\n"), ":3: cluster: the secrets were removed"},
		"no credentials":     {cluster(good), ":3: cluster: want either token"},
		"both":               {cluster(good + "  token: " + token + "\n  certificate: x\n"), ":3: cluster: want either token"},
		"certificate alone":  {cluster(good + "  certificate: " + block(cert)), ":3: cluster: want either token"},
		"foreign key":        {cluster(good + "  certificate: " + block(other) + "  key: " + block(key)), "cluster.certificate: with cluster.key"},
		"of a user":          {cluster(good + "  certificate: " + block(user) + "  key: " + block(userKey)), "cluster.certificate: its common name"},
		"of another node":    {cluster(good+"  certificate: "+block(cert)+"  key: "+block(key)) + "name: kiosk-2\n", "name: the certificate is for"},
		"by the rule":        {cluster(good+"  certificate: "+block(cert)+"  key: "+block(key)) + "name: k-{serial}\n", "name: it is \"k-10000000abcdef01\" here"},
		"with a hash":        {cluster("  caHash: " + ca.hash + "\n  certificate: " + block(cert) + "  key: " + block(key)), ":5: cluster.caHash: "},
		"address":            {head + "network: {clusterDNS: [x]}\n", ":3: network.clusterDNS[0]: "},
		"pod CIDR":           {head + "network:\n  podCIDR: 10.0.0.0/99\n", ":4: network.podCIDR"},
		"bundle key":         {head + "bundle:\n  keys: [x]\n", ":4: bundle.keys[0]: "},
		"bundle source":      {head + "bundle:\n  source: ftp://x\n", ":4: bundle.source: "},
		"bundle field":       {head + "bundle:\n  key: x\n", ":4: bundle.key: unknown field"},
		"update":             {head + "update:\n  keys: [x]\n", ":4: update.keys[0]: "},
	} {
		b := newBoard(t)
		b.write(tt.text)
		if got := b.refused(); !strings.Contains(got, tt.want) || !strings.HasPrefix(got, b.file()+":") {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
		if got := contents(t, b.Dir); got != "" {
			t.Errorf("%s: wrote %s", name, got)
		}
	}
}

// TestHostileFiles checks paths that are not regular files, and bombs: small files that would take much memory.
func TestHostileFiles(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"large":       func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("#", maxFile+1)), 0o600) },
	} {
		b := newBoard(t)
		must(t, make(b.file()))
		if got := b.refused(); strings.Contains(got, "root:") {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, body := range map[string]string{
		"wide":            "a: [" + strings.Repeat("{},", 20_000) + "]\n",
		"deep":            "a: " + strings.Repeat("[", 30_000),
		"doubled in turn": "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: &d [*c,*c]\ne: &e [*d,*d]\nf: [*e,*e]\n",
		"PEM headers":     "cluster: {server: 'https://x', token: " + token + ", ca: \"-----BEGIN A-----\\n" + strings.Repeat("a:b\\n", 10_000) + "\"}\n",
		"control":         "name: \"\\e[2J\\u202e\"\n",
	} {
		b := newBoard(t)
		b.write(head + body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.refused()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 24<<20 {
			t.Errorf("%s took %d MiB", name, took>>20)
		}
		r, err := load(b.State)
		must(t, err)
		if len(r.Refused.Why) > maxReport+3 || strings.ContainsAny(r.Refused.Why, "\x1b\u202e") {
			t.Errorf("%s: %q", name, r.Refused.Why)
		}
	}
}

// TestNames checks the rules for names.
func TestNames(t *testing.T) {
	for _, tt := range []struct {
		rule, want      string
		serials, cards  []string
		refused, repeat bool
	}{
		{"", "", nil, nil, false, false},
		{"kiosk-1.example", "kiosk-1.example", nil, nil, false, false},
		{"k-{serial}", "k-10000000abcdef01", []string{"10000000ABCDEF01", "x"}, nil, false, false},
		{"{serial}", "vm-12-ab", []string{" VM 12:Ab."}, nil, false, false},
		{"k-{mac}-{mac}", "k-dca632000001-dca632000001", nil, []string{"dc:a6:32:00:00:01", "x"}, false, false},
		{"k-{serial}", "", nil, nil, true, false},
		{"k-{serial}", "", []string{strings.Repeat("1", 300)}, nil, true, false},
		{"k-{mac}", "", []string{"1"}, nil, false, true},
	} {
		b := newBoard(t)
		b.serials, b.cards = tt.serials, tt.cards
		b.write(head + "name: '" + tt.rule + "'\n")
		if tt.refused {
			b.refused()
			continue
		}
		out, err := b.apply()
		if out.Name != tt.want || (err != nil) != tt.repeat {
			t.Errorf("%s: %q, %v", tt.rule, out.Name, err)
		}
		if flags := b.made("flags"); tt.want != "" && !strings.Contains(flags, "\n--hostname-override="+tt.want+"\n") {
			t.Errorf("%s: flags %q", tt.rule, flags)
		}
	}
}

// TestNoCard checks that the agent need not wait for a network card which does not appear.
func TestNoCard(t *testing.T) {
	b := newBoard(t)
	b.cards = nil
	b.write(head + "name: k-{mac}\n")
	if _, err := b.apply(); err == nil || errors.As(err, new(*RefusedError)) {
		t.Errorf("soon after the boot: %v", err)
	}
	b.Up = func() time.Duration { return cardTime }
	b.refused()
	b.Up = func() time.Duration { return 0 }
	b.write(head + "name: kiosk\n")
	b.inUse()
	b.write(head + "name: k-{mac}\n")
	b.refused()
}

// FuzzBoard checks that no file ends the program, and that the secrets of an accepted file are found in it.
func FuzzBoard(f *testing.F) {
	ca := newCA(f)
	cert, key := ca.issue(f, "system:node:a")
	f.Add([]byte(joining(ca)))
	f.Add([]byte(head + "bundle: {source: https://x/y, keys: [z]}\nupdate: {}\nled: ACT\nname: '{mac}'\n"))
	f.Add([]byte(head + "cluster:\n  server: https://x\n  ca: " + block(ca.pem) + "  certificate: " + block(cert) + "  key: " + block(key)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse("islet.yaml", data)
		if err != nil {
			return
		}
		r := &record{Digest: sum(mask(data, s.secrets)), Secrets: s.secrets}
		if !r.isFile(data) || !r.isFile(mask(data, s.secrets)) {
			t.Error("the record is not that of the file")
		}
		if c := s.board.Cluster; c != nil && isToken(c.Token) && strings.Contains(string(mask(data, s.secrets)), c.Token) {
			t.Error("the token is still there")
		}
		if _, err := newPlan(s, filepath.Join(t.TempDir(), "etc"), "a", &record{}, nil); err != nil && !strings.Contains(err.Error(), ": ") {
			t.Error(err)
		}
	})
}

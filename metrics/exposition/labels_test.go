package exposition

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/islet-edge/islet/metrics/process"
)

// FuzzLabels checks that Prometheus' parser accepts the page for any label value and help text, also with compression. The parser must
// return the same label, unless the label is invalid UTF-8.
func FuzzLabels(f *testing.F) {
	f.Add("eth0", "plain")
	f.Add("\xff", "\xfe")
	f.Add("a\"\\\n\xc3", "a \"\\\n\xc3 b")
	f.Add("é\u2028\x00\r\t ", "")
	f.Add("\xed\xa0\x80", "\\n\\")
	f.Fuzz(func(t *testing.T, label, help string) {
		valid := strings.ToValidUTF8(label, string(utf8.RuneError))
		w := httptest.NewRecorder()
		Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), []Sample{{Name: "a", Help: help, Labels: []string{"x", label, "y", "z"}, Value: 7}})
		text := w.Body.String()
		parser := expfmt.NewTextParser(model.LegacyValidation)
		got, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%v in\n%q", err, text)
		}
		if m := got["a"].GetMetric(); len(m) != 1 || len(m[0].Label) != 2 || m[0].Label[0].GetValue() != valid ||
			m[0].Label[1].GetValue() != "z" {
			t.Errorf("the label is %v, want %q", m, valid)
		}
		some := fullSubject("c1")
		some.Image, some.Network = label, []process.Interface{{Name: label}}
		plain, _ := servePage(t, []Subject{some}, "")
		if packed, _ := servePage(t, []Subject{some}, "gzip"); !bytes.Equal(plain, packed) {
			t.Errorf("packed it is another page:\n%q\n%q", packed, plain)
		}
		m := parse(t, bytes.NewReader(plain))["container_network_receive_bytes_total"].GetMetric()
		if len(m) != 1 {
			t.Fatalf("%d lines of one interface", len(m))
		}
		for _, l := range m[0].Label {
			if name := l.GetName(); (name == "interface" || name == "image") && l.GetValue() != valid {
				t.Errorf("the label %s is %q, want %q", name, l.GetValue(), valid)
			}
		}
	})
}

// TestInterfaceOfAnyBytes checks that an interface name that is not valid UTF-8 does not make the page invalid.
func TestInterfaceOfAnyBytes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	pod := exec.Command("cat")
	pod.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := pod.StdinPipe()
	if err == nil {
		err = pod.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		pod.Wait()
	})
	if out, err := exec.Command("nsenter", "-t", strconv.Itoa(pod.Process.Pid), "-n", "ip", "link", "add", "\xffa", "type", "veth",
		"peer", "name", "eth0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	some := fullSubject("c1")
	some.Network = process.Reader{}.Network(pod.Process.Pid)
	plain, _ := servePage(t, []Subject{fullSubject("c0"), some}, "")
	found := map[string]bool{}
	for _, m := range parse(t, bytes.NewReader(plain))["container_network_receive_bytes_total"].GetMetric() {
		for _, l := range m.Label {
			if l.GetName() == "interface" {
				found[l.GetValue()] = true
			}
		}
	}
	if !found["\uFFFDa"] || !found["eth0"] || !utf8.Valid(plain) {
		t.Errorf("the page has the interfaces %v", found)
	}
}

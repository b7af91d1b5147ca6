package figures

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
)

// absentOfMixin contains the metrics that the dashboards of kubernetes-mixin use and islet does not serve. The value is the reason.
var absentOfMixin = map[string]string{
	"storage_operation_errors_total": "a kubelet no longer has it; storage_operation_duration_seconds has the label status",
}

// TestMixin checks that islet serves the metrics and labels that the kubernetes-mixin rules and dashboards for kubelets and cAdvisor use.
// The served names are read from docs/metrics.md, which TestUpstream compares with the program.
func TestMixin(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	served := map[string][]string{} // the labels; the key consists of page and name
	for line := range strings.Lines(string(text)) {
		if c := strings.Split(line, " | "); len(c) >= 4 && strings.HasPrefix(c[0], "| /metrics") {
			served[strings.TrimPrefix(c[0], "| ")+" "+strings.Trim(c[1], "`")] = strings.Split(c[3], ", ")
		}
	}
	f, err := os.Open("testdata/mixin.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := 0
	for in := bufio.NewScanner(f); in.Scan(); names++ {
		w := append(strings.Split(in.Text(), " "), "")
		if strings.HasPrefix(w[1], "go_") || strings.HasPrefix(w[1], "process_") { // of the Go runtime and the process
			continue
		}
		labels, found := served[w[0]+" "+w[1]]
		if found == (absentOfMixin[w[1]] != "") {
			t.Errorf("%s: served: %v, listed as absent: %v", w[1], found, !found)
		}
		for label := range strings.SplitSeq(w[2], ",") {
			if found && label != "" && !slices.Contains(labels, label) {
				t.Errorf("%s lacks the label %s: %q", w[1], label, labels)
			}
		}
	}
	if names < 40 {
		t.Errorf("%d names", names)
	}
}

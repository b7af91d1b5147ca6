package kube_test

import (
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
)

// TestEndlessAnswer checks that an endless response and a huge compressed response are errors and use little memory.
func TestEndlessAnswer(t *testing.T) {
	s := kubetest.New(t)
	c := client(t, s)
	endless := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		blank := []byte(strings.Repeat(" ", 1<<20))
		for range 1 << 10 { // 1 GiB
			if _, err := z.Write(blank); err != nil {
				return
			}
		}
		t.Error("a gibibyte was accepted")
	}
	s.Mux.HandleFunc("GET /api/v1/nodes/n", endless)
	s.Mux.HandleFunc("GET /api/v1/pods", endless)
	if _, err := kube.Get[corev1.Node](t.Context(), c, "", "n"); err == nil || !strings.Contains(err.Error(), "longer than 8 MiB") {
		t.Errorf("got %v", err)
	}
	if _, err := kube.List[corev1.PodList](t.Context(), c, "", metav1.ListOptions{}); err == nil ||
		!strings.Contains(err.Error(), "longer than 8 MiB") {
		t.Errorf("got %v", err)
	}
}

package store

import (
	"bytes"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestCertificates checks that a certificate survives a restart and is removed with its pod. It is not stored in plain text.
func TestCertificates(t *testing.T) {
	path := t.TempDir() + "/islet.db"
	s := open(t, path)
	ctx := t.Context()
	web := typical("web")
	must(t, s.UpdatePods(ctx, []Pod{web}, nil))
	must(t, s.MarkFilled(ctx))
	row := Certificate{CertificateKey{web.Pod.UID, "creds", 1}, []byte("-----BEGIN PRIVATE KEY-----")}
	must(t, s.PutCertificate(ctx, row))
	must(t, s.PutCertificate(ctx, Certificate{CertificateKey{"stranger", "creds", 1}, row.State}))
	for _, file := range []string{path, path + "-wal"} {
		if data, err := os.ReadFile(file); err != nil || bytes.Contains(data, row.State) {
			t.Error(file, "has the key:", err)
		}
	}
	s = reopen(t, s)
	if list, err := s.Certificates(ctx); err != nil || len(list) != 1 || list[0].CertificateKey != row.CertificateKey ||
		!bytes.Equal(list[0].State, row.State) {
		t.Errorf("got %+v: %v", list, err)
	}
	must(t, s.RemoveCertificates(ctx, web.Pod.UID))
	if list, err := s.Certificates(ctx); err != nil || len(list) != 0 {
		t.Errorf("certificates of an ended pod: %+v, %v", list, err)
	}
	must(t, s.PutCertificate(ctx, row))
	must(t, s.UpdatePods(ctx, nil, []types.UID{web.Pod.UID}))
	if list, err := s.Certificates(ctx); err != nil || len(list) != 0 {
		t.Errorf("certificates of a removed pod: %+v, %v", list, err)
	}
}

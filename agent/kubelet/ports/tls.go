package ports

import (
	"crypto/tls"
	"errors"
	"fmt"

	cliflag "k8s.io/component-base/cli/flag"
)

// tlsConfig returns the configured TLS settings of port 10250.
func (a Config) tlsConfig() (*tls.Config, error) {
	k := &a.Kubelet
	oldest, verr := cliflag.TLSVersion(k.TLSMinVersion)
	suites, serr := cliflag.TLSCipherSuites(k.TLSCipherSuites)
	curves, cerr := cliflag.TLSCurvePreferences(k.TLSCurvePreferences)
	if err := errors.Join(verr, serr, cerr); err != nil {
		return nil, fmt.Errorf("TLS of the kubelet API: %w", err)
	}
	if len(suites) == 0 {
		suites = strongCipherSuites
	}
	return &tls.Config{MinVersion: oldest, CipherSuites: suites, CurvePreferences: curves,
		DynamicRecordSizingDisabled: true, // or the first 128 KiB after a pause need a system call per 1.4 KiB
		GetCertificate:              a.Link.ServingCertificate, NextProtos: []string{"h2", "http/1.1"}}, nil
}

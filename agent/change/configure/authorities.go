package configure

import (
	"fmt"

	"github.com/islet-edge/islet/internal/clientca"
	"github.com/islet-edge/islet/internal/config"
)

// checkClientCA returns an error if the new configuration names another client CA file and that file is invalid.
// With such a file, no client could authenticate with a certificate. The trial cannot detect this problem,
// because the node itself may have no client certificate.
func checkClientCA(now, next *config.Config) error {
	file := next.Kubelet.Authentication.X509.ClientCAFile
	if file == "" || file == now.Kubelet.Authentication.X509.ClientCAFile {
		return nil
	}
	if _, err := clientca.Read(file); err != nil {
		return fmt.Errorf("authentication.x509.clientCAFile: Invalid value: %q: %w", file, err)
	}
	return nil
}

package configure

import (
	"fmt"

	"github.com/islet-edge/islet/internal/clientca"
	"github.com/islet-edge/islet/internal/config"
)

// authorities returns an error if next has another client CA file than now and that file is invalid. No client could
// authenticate with a certificate then. The trial cannot detect that, because the node may have no client
// certificate.
func authorities(now, next *config.Config) error {
	file := next.Kubelet.Authentication.X509.ClientCAFile
	if file == "" || file == now.Kubelet.Authentication.X509.ClientCAFile {
		return nil
	}
	if _, err := clientca.Read(file); err != nil {
		return fmt.Errorf("authentication.x509.clientCAFile: Invalid value: %q: %w", file, err)
	}
	return nil
}

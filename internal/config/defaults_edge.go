package config

// defaultEdge returns the defaults of an EdgeConfiguration. Fields that are missing here are empty or off by default.
func defaultEdge() EdgeConfiguration {
	return EdgeConfiguration{
		APIVersion:        EdgeAPIVersion,
		Kind:              EdgeKind,
		ShimPods:          64,
		BridgeName:        "islet0",
		NetworkPlugin:     "auto",
		CNIConfDir:        "/etc/cni/net.d",
		CNIBinDirs:        []string{"/opt/cni/bin", "/usr/lib/cni"}, // the second directory is Debian's
		RegistryConfigDir: "/etc/containerd/certs.d",
		RealTime:          RealTime{Bandwidth: 50, BusyLimit: secondsDuration(1)},
		Configuration:     Following{HealthyFor: secondsDuration(60), Deadline: secondsDuration(180)},
		Bundle: Bundles{Threshold: 1, Every: secondsDuration(3600),
			HealthyFor: secondsDuration(20), Deadline: secondsDuration(300)},
		Update: Updates{Threshold: 1, Every: secondsDuration(24 * 3600)},
		TPM:    TPM{Device: "/dev/tpmrm0", Policies: "/etc/islet/policies"},
	}
}

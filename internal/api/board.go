package api

// Board contains the readings of the machine's sensors that the kernel exports.
type Board struct {
	Temperatures []Temperature `json:"temperatures,omitempty"`
	// Power lists the present conditions: under-voltage, frequency capped, throttled, soft
	// temperature limit.
	Power          []string `json:"power,omitempty"`
	PowerSinceBoot []string `json:"powerSinceBoot,omitempty"`
	MHz            float64  `json:"mhz,omitempty"` // the present frequency of the first CPU
	MaxMHz         float64  `json:"maxMHz,omitempty"`
	Links          []string `json:"links,omitempty"` // the network interfaces that connect the machine to others
}

// A Temperature is the reading of one sensor.
type Temperature struct {
	Name    string  `json:"name"`
	Celsius float64 `json:"celsius"`
}

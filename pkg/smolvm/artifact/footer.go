package artifact

import (
	"bytes"
	"encoding/binary"
)

// footerSize is the size of a footer in bytes.
const footerSize = 64

// magic is what a footer begins with.
const magic = "SMOLPACK"

// newestVersion is that of the format that smolvm 1.9.3 writes. 1 is a program with assets, 2 assets with libraries beside the
// program, 3 assets without libraries. What is used here is the same in all of them.
const newestVersion = 3

// span is a part of a file, in bytes.
type span struct{ offset, size int64 }

// footer says where the parts of an artifact are.
type footer struct {
	assets, manifest span
	// sum is the CRC-32 (IEEE) of assets and manifest.
	sum uint32
}

// parseFooter parses the last 64 bytes of a file of this size. All numbers are little endian:
//
//	 0 magic        8 bytes
//	 8 version      4
//	12 stub size    8   of the program
//	20 assets       8+8 offset and size
//	36 manifest     8+8 offset and size
//	52 checksum     4
//	56 reserved     8   zero
//
// The parts follow each other without a gap, so that no byte of the file is in none of them, or in two.
func parseFooter(text []byte, size int64) (footer, error) {
	number := func(at int) uint64 { return binary.LittleEndian.Uint64(text[at:]) }
	if !bytes.HasPrefix(text, []byte(magic)) {
		return footer{}, wrongf("its footer does not begin with %s", magic)
	}
	if version := binary.LittleEndian.Uint32(text[8:]); version < 1 || version > newestVersion {
		return footer{}, lackingf("it has version %d of the format, and 1 to %d are known", version, newestVersion)
	}
	if number(56) != 0 {
		return footer{}, wrongf("the end of its footer is not zero")
	}
	// Each of the numbers is compared with the size before it is added to another: none overflows.
	end := uint64(size) - footerSize //nolint:gosec // G115: the caller has compared it
	stub, assets, assetsSize, manifest, manifestSize := number(12), number(20), number(28), number(36), number(44)
	switch {
	case stub != assets:
		return footer{}, wrongf("its program has %d bytes, and its assets begin at %d", stub, assets)
	case assets > end || assetsSize > end-assets:
		return footer{}, wrongf("its assets, %d bytes from %d, end behind the file", assetsSize, assets)
	case manifest != assets+assetsSize:
		return footer{}, wrongf("its manifest begins at %d, and its assets end at %d", manifest, assets+assetsSize)
	case manifestSize != end-manifest:
		return footer{}, wrongf("its manifest has %d bytes, and there are %d up to the footer", manifestSize, end-manifest)
	case manifestSize > maxManifest:
		return footer{}, wrongf("its manifest has %d bytes, and may have %d", manifestSize, maxManifest)
	}
	return footer{
		assets:   span{int64(assets), int64(assetsSize)},     //nolint:gosec // G115: no more than the size of the file
		manifest: span{int64(manifest), int64(manifestSize)}, //nolint:gosec // G115: the same
		sum:      binary.LittleEndian.Uint32(text[52:]),
	}, nil
}

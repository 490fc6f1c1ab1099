# The front door; CMakePresets.json knows the rest. PRESET=debug and PREFIX=/usr/local work with each.
PRESET ?= release
build:   ; cmake --preset $(PRESET) && cmake --build --preset $(PRESET)
test:    build ; ctest --preset $(PRESET)
asan:    ; $(MAKE) test PRESET=asan
bench:   build ; build/$(PRESET)/bin/antigravity bench $(ARGS)
format:  ; git ls-files '*.c' '*.h' '*.cl' | xargs clang-format -i
install: ; cmake --preset $(PRESET) && cmake --build --preset $(PRESET) --target antigravity_program && cmake --install build/$(PRESET) $(if $(PREFIX),--prefix $(PREFIX))
clean:   ; rm -rf build/$(PRESET)
.PHONY: build test asan bench format install clean

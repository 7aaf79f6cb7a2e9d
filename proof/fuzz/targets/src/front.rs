#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| semel_fuzz::front::check(input));

# frozen_string_literal: true

# All tests of `thruway run` under Wine, in one process.

%w[boot counts].each { |name| require_relative name }

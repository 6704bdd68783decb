# frozen_string_literal: true

module Thruway
  # Times and sizes in configuration files: numbers, or texts as the options of the command take
  # them, such as "10s" and "64M".
  module Quantities
    TIMES = { "ms" => 1e-3, "s" => 1, "m" => 60, "h" => 3_600, "d" => 86_400 }.freeze
    TIME = /\A(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+\z/
    SIZES = { "" => 0, "K" => 10, "M" => 20, "G" => 30, "T" => 40, "P" => 50 }.freeze
    SIZE = /\A(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?\z/i

    module_function

    # The seconds of a time.
    def seconds(value)
      return number(value) unless value.is_a?(String) && value.match?(TIME)

      value.scan(/([\d.]+)([a-z]+)/).sum { |number, unit| number.to_r * TIMES.fetch(unit) }.to_f
    end

    # The bytes of a size.
    def bytes(value)
      return value if value.is_a?(Integer) && value >= 0

      number, unit = value.to_s.match(SIZE)&.captures
      raise ArgumentError, "#{value.inspect} is not a size, such as 64M or 1048576" unless number

      (number.to_r * (1 << SIZES.fetch(unit.upcase))).to_i
    end

    def number(value) = value.is_a?(Integer) ? value : Float(value)
  end
end

# frozen_string_literal: true

require_relative "shapes"

run Shapes.new

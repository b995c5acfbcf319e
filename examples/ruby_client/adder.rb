#!/usr/bin/env ruby
# frozen_string_literal: true

# A training program: the task of `hopyard conformance app`.
require_relative 'hopyard'

# The program: x begins at 0, and each iteration adds `lr`. Replace it by your own class.
class Adder
  def initialize(values)
    @step = pick(values, 'lr', Integer, Float)
    @step = -@step if pick(values, 'sign', 'plus', 'minus', nil) == 'minus'
    @step *= 2 if pick(values, 'twice', true, false, nil)
    @x = pick(pick(values, 'start', Hash, nil) || {}, 'x', Integer, Float, nil).to_f
    @seconds = pick(values, 'seconds', Integer, Float, nil).to_f
    @last, @nan_at = %w[last nan_at].map { |name| pick(values, name, Integer, nil) || Float::INFINITY }
  end

  def train(position) # trains the iteration that ends there and returns its metrics
    sleep @seconds
    @x += @step
    { 'value' => position == @nan_at ? Float::NAN : @x }
  end

  def done?(position) = position >= @last
  def save(path) = File.write(path, @x.to_s) # to_s gives all digits that are needed
  def load(path) = @x = Float(File.read(path))

  def pick(values, name, *allowed)
    return values[name] if allowed.any? { |kind| kind === values[name] }

    raise ArgumentError, "hyperparameter #{name} is #{values[name].inspect}; allowed: #{allowed.map(&:inspect).join(', ')}"
  end
end

Run.train { |values| Adder.new(values) }
